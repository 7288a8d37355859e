"""Random user input, with fixed seeds, gives an error of madbench or a result, in bounded time and memory."""

from __future__ import annotations

import contextlib
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
import yaml

from madbench import config
from madbench.cli.validate import check_file
from madbench.errors import MadbenchError
from madbench.grid import load_grid
from madbench.labels import available_sets, expand, explain, parse
from madbench.mixers.srg.listing import all_labels
from madbench.suites import size_of
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS

pytestmark = pytest.mark.slow

SECONDS = 3.0  # of the processor, of one case at most
MEGABYTES = 300  # that all cases together add to the process at its largest
LETTERS = [
    *"SRGpcgqv12o!-{},~@:=. \n\0",
    "é",
    "\u202e",
    "\ud800",
    "S-c",
    "G-cg-q-12o",
    "@table1",
    "~S",
    "HyperGLU",
    "{S,R}",
]
NUMBERS = [0, 1, -1, 2, 64, 10**8, 10**12, 10**20, 10**120, 0.5, -0.0, 1e-300, 1e308, float("inf"), float("nan"), True]
VALUES = [*NUMBERS, "", "x", "auto", "\0", "x" * 100_000, None, [], {}, [[]], [1, [2]], {"a": {"b": 1}}, [float("nan")]]
# fmt: off
TEXTS = ["", "[", "{", "{[a]: 1}", "&a [*a]", "&a {b: *a}", "1" * 5000, "2024-13-45",
         "!!python/none", "!!binary x", "!!set {a}", "[" * 3000, "1:" * 3000, "'", '"\\ud800"', "%",
         "<<: 1", "? 1", "\t", "1e400"]
# fmt: on


def call_bounded(cases: Iterable[Callable[[], object]]) -> int:
    """Call each case.

    Only errors of madbench are allowed, of at most a few thousand characters. Returns their number.
    """
    errors, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i, case in enumerate(cases):
        started = time.process_time()
        try:
            case()
        except MadbenchError as error:
            errors += 1
            assert len(str(error)) < 20_000, i
        except Exception as error:
            raise AssertionError(f"case {i}") from error
        assert (seconds := time.process_time() - started) < SECONDS, (i, seconds)
        assert (grown := (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3) < MEGABYTES, (i, grown)
    return errors


def label_texts(rng: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        text = list(rng.choice(all_labels())) if rng.random() < 0.5 else []
        for _ in range(rng.randrange(12)):
            text.insert(rng.randrange(len(text) + 1), rng.choice(LETTERS))
        repeats = 10 ** rng.randrange(5) if rng.random() < 0.02 else 1
        yield "".join(text) * repeats


def test_two_thousand_random_labels_raise_only_our_errors():
    texts = label_texts(random.Random(0), 2_000)

    def case(text: str) -> None:
        with contextlib.suppress(MadbenchError):
            explain(parse(text))
        expand([text])

    errors = call_bounded((lambda text=text: case(text)) for text in texts)
    assert 1_000 < errors < 2_000


def overrides(rng: random.Random, keys: list[str], count: int) -> Iterator[list[str]]:
    for _ in range(count):
        found = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            key = (
                rng.choice(keys)
                .replace("TASK", rng.choice(MAD_TASKS))
                .replace("KEY", rng.choice(["seq_len", "vocab_size"]))
            )
            if rng.random() < 0.1:
                key = "".join(rng.sample(key, len(key)))
            text = (
                rng.choice(TEXTS) if rng.random() < 0.3 else yaml.safe_dump(rng.choice(VALUES), default_flow_style=True)
            )
            found.append(f"{key}={text.removesuffix('...' + chr(10)).strip()}")
        yield found


@pytest.mark.parametrize("suite", [MAD, LANGUAGE], ids=["mad", "language"])
def test_two_thousand_random_overrides_raise_only_our_errors(suite, tmp_path):
    corpus = type("Corpus", (), {"digest": "0" * 16, "padded_vocab_size": 320})()
    more = {"corpus": corpus} if suite is LANGUAGE else {}

    def case(changes: list[str]) -> None:
        profile = suite.Profile.load("tiny" if suite is LANGUAGE else "quick", changes)
        for job in suite.jobs(["G-cg-q-12o"], profile, **more)[:20]:
            size_of(job)

    found = overrides(random.Random(1), list(suite.Profile.docs()), 1_000)
    errors = call_bounded((lambda changes=changes: case(changes)) for changes in found)
    assert 600 < errors < 1_000


def files(rng: random.Random, count: int) -> Iterator[str]:
    """Shipped YAML files and a grid, with a few random changes."""
    grid = "labels: [S, R-c]\nseeds: 0-2\nset: {training.epochs: 3}\nvary: {model.d_model: [32, 64]}\nmode: product\n"
    shipped = [grid, *(path.read_text() for path in sorted(config.TASKS.rglob("*.yaml")))]
    shipped += [path.read_text() for path in available_sets().values()]
    for _ in range(count):
        text = rng.choice(shipped)
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 5)):
                place = rng.randrange(len(text))
                text = (
                    text[:place] + rng.choice([*TEXTS, *LETTERS, ": ", "- ", "\n  "]) + text[place + rng.randrange(9) :]
                )
        else:
            content = yaml.safe_load(text)
            for _ in range(rng.randrange(1, 4)):
                node = content
                while isinstance(node, dict) and node and rng.random() < 0.9:
                    above, key = node, rng.choice(list(node))
                    node = node[key]
                above[key] = rng.choice(VALUES)
            text = yaml.safe_dump(content, allow_unicode=True)
        yield text


def test_five_hundred_random_yaml_files_raise_only_our_errors(tmp_path):
    path = tmp_path / "file.yaml"

    def case(text: str) -> None:
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        check_file(path)
        for load in (
            MAD.Profile.load,
            LANGUAGE.Profile.load,
            lambda name: load_grid(name, {}),
            lambda name: expand([f"@{name}"]),
        ):
            with contextlib.suppress(MadbenchError):
                load(str(path))

    call_bounded((lambda text=text: case(text)) for text in files(random.Random(2), 500))
