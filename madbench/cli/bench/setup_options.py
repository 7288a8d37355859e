"""The options of ``madbench bench`` that decide what is measured and on which device."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from madbench.cli.shared import options
from madbench.config import parse_seeds, short_repr
from madbench.config.options import EVERY_VERB, option
from madbench.errors import ConfigError, MadbenchError, did_you_mean, no_effect
from madbench.jobs import MixedPrecision, ProfilePrecision
from madbench.suites import main_suite
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.bench.parts import BenchSetup

OWNERS = {
    "--peer": ["training"],
    "--profile": ["training", "costs"],
    "--paths": ["mixers", "length"],
    "--d-model": ["mixers", "length", "table5", "decode", "costs"],
}
"""The parts of the benchmark on which an option has an effect, by option."""
PARTS_OF_ONE_LENGTH = {"table5", "decode", "costs"}
DEFAULT_PROFILE = "full"


@dataclass(frozen=True)
class SetupOptions:
    """The options of ``madbench bench`` from which the :class:`madbench.bench.parts.BenchSetup` is made."""

    lengths: Annotated[
        str | None,
        option(
            "Lengths such as 128,512,1024; for training, tasks of these lengths, or all.",
            show_default="per part",
        ),
    ] = None
    batch: Annotated[int | None, option("Number of sequences.", min=1, show_default="per part", rare=EVERY_VERB)] = None
    d_model: Annotated[int | None, option("Width of mixers and language models.", min=8, show_default="per part")] = (
        None
    )
    profile: Annotated[
        str,
        option("Profile of MAD training: full, evening, quick or a YAML file.", "--profile", "-p", completes="PROFILE"),
    ] = DEFAULT_PROFILE
    paths: Annotated[
        str | None,
        option("Paths of mixers such as dense,fused.", show_default="all that run here", completes="PATH,..."),
    ] = None
    peer: Annotated[Path | None, option("Checkout of github.com/athms/mad-lab, whose model is also timed.")] = None
    device: options.DeviceOption = "auto"
    threads: Annotated[int | None, option("Threads on a CPU.", min=1, show_default="all cores")] = None
    precision: Annotated[
        ProfilePrecision,
        option(
            "Arithmetic of matrix products; auto: bfloat16 on a GPU, else float32.",
            rare=EVERY_VERB,
        ),
    ] = "auto"
    compile: Annotated[
        Literal["auto", "never", "always"],
        option(
            "torch.compile for all models of table5, for those of training on a CPU, and once more for the chunked "
            "path of mixers; auto: on a GPU.",
            rare=EVERY_VERB,
        ),
    ] = "auto"
    repeats: Annotated[
        int, option("Number of rounds, after a first one that does not count.", min=2, rare=EVERY_VERB)
    ] = 5

    def setup(self, labels: Sequence[str], parts: Sequence[str]) -> BenchSetup:
        """The settings for measuring ``labels`` with the benchmark parts that are named in ``parts``.

        Raises ``ConfigError`` for an option without effect on these parts, and for a value that is not allowed.
        """
        from madbench.bench.parts import BenchSetup
        from madbench.bench.timing import TimingLimits

        self._check_effects(parts)
        if self.peer:
            importlib.import_module(main_suite().reference).check_checkout(self.peer)
        device = resolve_device(self.device)
        if self.threads and device != "cpu":
            raise no_effect(f"--threads {self.threads}", f"on {device}")
        setup = BenchSetup(
            labels,
            device,
            self._precision_on(device),
            TimingLimits(self.repeats),
            self.profile,
            self._lengths_of(parts),
            self.batch,
            self.d_model,
            self.peer,
            tuple(dict.fromkeys(path.strip() for path in self.paths.split(","))) if self.paths else (),
            compiles=self.compile == "always" or (self.compile == "auto" and device != "cpu"),
        )
        _check_paths(setup)
        return setup

    def _check_effects(self, parts: Sequence[str]) -> None:
        """Raise ``ConfigError`` if the user gave an option that has no effect on any of the parts."""
        given = {"--peer": self.peer, "--paths": self.paths, "--d-model": self.d_model}
        if self.profile != DEFAULT_PROFILE:
            given["--profile"] = self.profile
        for flag, value in given.items():
            if value is not None and not {*OWNERS[flag]} & {*parts}:
                raise no_effect(f"{flag} {value}", f"without the part {' or '.join(OWNERS[flag])}")

    def _precision_on(self, device: str) -> MixedPrecision:
        if self.precision == "auto":
            return "float32" if device == "cpu" else "bfloat16"
        return self.precision

    def _lengths_of(self, parts: Sequence[str]) -> tuple[int, ...]:
        """The sequence lengths that the user requested. Empty to use the default lengths of each part.

        Raises ``ConfigError`` for a length of 0, and for several lengths if all parts take only one.
        """
        lengths = tuple(parse_seeds(self.lengths, "--lengths")) if self.lengths else ()
        if 0 in lengths:
            raise ConfigError(f"--lengths {self.lengths}: a sequence has at least one token")
        if len(lengths) > 1 and {*parts} <= PARTS_OF_ONE_LENGTH:
            raise ConfigError(f"--lengths {self.lengths}: the part {' or '.join(parts)} has one length")
        return lengths


def paths_offered(setup: BenchSetup) -> list[str]:
    """The computation paths that the user can request: ``auto``, ``reference``, and each path of at least one label."""
    from madbench.bench.mixer import InputShape, make, paths_of

    paths = ["auto", "reference"]
    for label in setup.labels:
        with suppress(MadbenchError):  # a label that cannot be built is a row with its reason
            paths += paths_of(make(label, InputShape(1, 8, setup.d_model or 128), setup))
    return list(dict.fromkeys(paths))


def _check_paths(setup: BenchSetup) -> None:
    """Raise ``ConfigError`` if the user requested a path that none of the labels has."""
    known_paths = paths_offered(setup) if setup.paths else []
    for path in setup.paths:
        if path not in known_paths:
            problem = f"these labels have no path {short_repr(path)}{did_you_mean(path, known_paths)}"
            raise ConfigError(f"--paths {','.join(setup.paths)}: {problem}")
