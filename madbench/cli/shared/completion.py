"""Shell completion of labels, sets, tasks, profiles, figures, stored runs and other names.

The metavar of an argument or option selects its completion. Errors are ignored: they give no completion.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

Complete = Callable[..., list[str]]


def completion_of(metavar: str) -> Complete | None:
    """The completion function for a metavar such as ``LABEL|KEY=VALUE``. None if it has no completion.

    The function returns the possible completions of the word that is being typed. Errors in it are ignored and give no
    completions.
    """
    names = [name for name in (metavar, *metavar.split("|")) if name in _SOURCES]
    if not names:
        return None

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from madbench.labels import trust

        prefix, word = _whole_word(incomplete)
        words: list[str] = []
        for name in names:
            with suppress(Exception), trust.allow_only(()):  # completion must not run the code of other people
                words += _SOURCES[name](ctx, word)
        return [_Completion(text.removeprefix(prefix)) for text in dict.fromkeys(words)]

    return complete


def rejoin_options() -> None:
    """Join ``--profile``, ``=`` and ``qu``, into which bash splits ``--profile=qu``, as the two words ``--profile qu``.

    The words are those in the environment variables of shell completion. No effect without them.
    """
    if (text := os.environ.get("COMP_WORDS")) is None:
        return
    words, place = text.split("\n" if "\n" in text else " "), int(os.environ.get("COMP_CWORD", "0"))
    signs = [i for i, word in enumerate(words) if word == "=" and i and words[i - 1].startswith("--")]
    kept_words = ["" if i in signs else word for i, word in enumerate(words) if i not in signs or i == place]
    os.environ["COMP_WORDS"] = "\n".join(kept_words)
    os.environ["COMP_CWORD"] = str(place - sum(i < place for i in signs))


class _Completion(str):
    """A completion that typer offers even if it does not begin with the word that is being typed.

    Bash may pass only a part of the word, such as the text after a colon.
    """

    def startswith(self, *_: Any) -> bool:
        return True


def _whole_word(incomplete: str) -> tuple[str, str]:
    """The part of the current word that bash does not pass, and the whole word.

    Bash splits words at ':' and '@'. For ``cd:ga`` it passes ``ga`` and replaces only that, so the result is
    ``("cd:", "cd:ga")``. For ``@tab`` it passes ``tab`` and replaces the whole word, so the result is ``("", "@tab")``.
    """
    place = int(os.environ.get("COMP_CWORD", "0"))
    words = ["", "", *os.environ.get("COMP_WORDS", "").split()[:place], incomplete]
    if incomplete in (":", "@"):
        words.append("")
    *_, first, sign, last = words
    if sign == ":":
        return f"{first}:", f"{first}:{last}"
    return "", "@" + last if sign == "@" else incomplete


def _labels(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """The completions of a label: names of sets, prefixes of families, and labels.

    A label is offered up to the end of the part that is being typed. Hyphens separate parts. In a hybrid, such as
    ``S-p/KDA``, only the last label is completed.
    """
    from madbench.labels import available_sets, every_label, families, loaded_families, mixer_names

    if incomplete.startswith("@"):
        yield from _starting_with(incomplete, (f"@{name}" for name in available_sets()))
        return
    head, slash, last = incomplete.rpartition("/")  # earlier layers of a hybrid
    match = re.match("~?([0-9]+x)?", last)  # a neighborhood, and a count of layers
    start = match[0] if match else ""
    sign, text = f"{head}{slash}{start}", last.removeprefix(start)
    parts = text.count("-") + 1
    labels = [*_labels_of_sets(), *every_label()]
    for family in loaded_families().values() if ":" in text else ():
        labels += [*family.mixers.values(), *filter(None, [family.example])]
    matching = _starting_with(text, (*mixer_names(), *labels))
    beginnings = ("-".join(label.split("-")[:parts]) for label in matching)
    prefixes = () if ":" in text else (f"{name}:" for name in families() if name)
    yield from (sign + word for word in _starting_with(text, (*beginnings, *prefixes)))
    if not incomplete:
        yield from (f"@{name}" for name in available_sets())


def _labels_of_sets() -> Iterator[str]:
    """The labels with a family's prefix, such as ``cd:exp``, in the files of all sets of labels, as written there."""
    from madbench.config import read_yaml
    from madbench.labels import available_sets

    for path in available_sets().values():
        yield from (
            text for text in read_yaml(path)["labels"] if ":" in text and text[0] not in "@~" and "{" not in text
        )


def _tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.suites import task_suites

    return _starting_with(incomplete, task_suites())


def _several_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of tasks and suites for a list with commas. Names that are already in the list are left out."""
    from madbench.suites import suites, task_suites

    return _next_in_list(incomplete, (*task_suites(), *suites()))


def _profiles(ctx: typer.Context, incomplete: str) -> list[str]:
    """The profiles of the suite of the tasks on the command line, or of the default suite if there are no tasks."""
    from madbench.suites.addressing import leading_suite

    tasks = ctx.params.get("tasks")
    task_names = [task for word in tasks or () for task in word.split(",")]
    if ctx.info_name == "train":
        task_names = ["language_model"]
    return _starting_with(incomplete, leading_suite(task_names or None).Profile.names())


def _figures(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.analysis.figures import figure_names

    return _starting_with(incomplete, figure_names())


def _columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the table that the words and options on the command line so far select."""
    from madbench.cli.shared.options import StoredOptions
    from madbench.cli.table import losses_of

    values = {field.name: ctx.params.get(field.name) for field in dataclasses.fields(StoredOptions)}
    stored = StoredOptions(**{name: value for name, value in values.items() if value is not None})
    selection = dataclasses.replace(stored.selection(_words(ctx)), track=iter, warn=lambda message: None)
    table = selection.table(thresholds=losses_of(ctx.params.get("thresholds")))
    return _starting_with(incomplete, ("label", *table.sort_keys()))


def _runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The labels and ids of the stored runs."""
    from madbench.store.reading import Snapshot

    jobs = Snapshot.open(Path(ctx.params.get("results") or "results")).jobs()
    return _starting_with(incomplete, (*sorted({job.label for job in jobs.values()}), *jobs))


def _kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.cli.ls.listings import listings

    return _starting_with(incomplete, listings())


def _papers(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.papers import loaded_papers

    return _starting_with(incomplete, loaded_papers()[0])


def _paper_words(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of papers for the first word, and names of the paper's items for the second word."""
    from madbench.papers import load_paper

    if not (words := ctx.params.get("words")):
        return _papers(ctx, incomplete)
    return _starting_with(incomplete, [item.id for item in load_paper(words[0]).items] if len(words) == 1 else ())


def _paper_profiles(ctx: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, ("quick", "full"))


def _claims(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the claims in the file or paper given by ``--claims``. By default those of all papers."""
    from madbench.analysis.claims import claims_by_paper, load_claims

    source = ctx.params.get("claims")
    claims = load_claims(source) if source else [claim for of_paper in claims_by_paper().values() for claim in of_paper]
    return _next_in_list(incomplete, [claim.name for claim in claims])


def _devices(ctx: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, ("auto", "cpu", "cuda"))


def _tokenizers(ctx: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, ("bytes", "gpt2", "none:"))


def _new_tokenizers(ctx: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, ("bytes", "gpt2", "bpe:", "hf-tokenizer:"))


def _parts(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.cli.bench import PARTS

    return _starting_with(incomplete, PARTS)


def _paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """The computation paths of the labels on the command line. Without labels, those of the default labels."""
    from madbench.bench.parts import BenchSetup
    from madbench.bench.timing import TimingLimits
    from madbench.cli.bench import LABELS, PARTS
    from madbench.cli.bench.setup_options import paths_offered
    from madbench.cli.shared.words import names_and_labels
    from madbench.labels import expand

    _, labels = names_and_labels(_words(ctx), PARTS, "part")
    width = ctx.params.get("d_model")
    setup = BenchSetup(expand(labels) or LABELS, "cpu", "float32", TimingLimits(1), "full", d_model=width)
    return _next_in_list(incomplete, paths_offered(setup))


def _dtypes(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.text.token_files import DTYPES

    return _starting_with(incomplete, DTYPES)


def _questions(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.training.multiple_choice import TASKS

    return _next_in_list(incomplete, TASKS)


def _trackers(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.trackers import NAMES

    return _next_in_list(incomplete, NAMES)


def _splits(ctx: typer.Context, incomplete: str) -> list[str]:
    from madbench.tasks.base import SPLITS

    return _starting_with(incomplete, SPLITS)


def _groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, ("auto",))


def _words(ctx: typer.Context) -> list[str]:
    """The words on the command line that are not options.

    Click keeps them in ``ctx.args`` while the value of an option is completed, and otherwise in the parameter
    ``words``.
    """
    return [*(ctx.params.get("words") or ctx.args)]


def _next_in_list(incomplete: str, names: Iterable[str]) -> list[str]:
    """The completions of a list with commas. Each is the list so far with one of ``names`` that is not in it yet."""
    *named_items, last = incomplete.split(",")
    before = "".join(f"{name}," for name in named_items)
    return [before + name for name in _starting_with(last, names) if name not in named_items]


def _starting_with(start: str, words: Iterable[Any]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(start)]


_SOURCES = {
    "LABEL": _labels,
    "TASK": _tasks,
    "TASK,...": _several_tasks,
    "PROFILE": _profiles,
    "FIGURE": _figures,
    "COLUMN": _columns,
    "RUN": _runs,
    "RUN2": _runs,
    "KIND": _kinds,
    "PAPER": _papers,
    "[PAPER [ITEM [KEY=VALUE]]]": _paper_words,
    "SIZE": _paper_profiles,
    "CLAIM": _claims,
    "CLAIM,...": _claims,
    "DEVICE": _devices,
    "TOKENIZER": _tokenizers,
    "NEW_TOKENIZER": _new_tokenizers,
    "PART": _parts,
    "PATH,...": _paths,
    "DTYPE": _dtypes,
    "QUESTIONS,...": _questions,
    "TRACKER": _trackers,
    "SPLIT": _splits,
    "auto": _groups,
}
"""The completion functions, by a whole metavar or one of its words. The words of a metavar are separated by ``|``."""
