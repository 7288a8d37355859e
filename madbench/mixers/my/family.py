"""A user's own modules, such as my:my_mixers.GatedMean. As they are, at no budget: parameters are measured."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from madbench.errors import BudgetError, LabelError, MadbenchError, did_you_mean
from madbench.labels import Explanation, trust
from madbench.labels.diagnosis import point_at
from madbench.mixers import Check, ListedFamily, Size, Traits
from madbench.mixers.checks import SMALL, general_checks
from madbench.mixers.my.sources import FILE, SAMPLE, entries, is_path, path_of, source

if TYPE_CHECKING:
    from madbench.mixers.my.measures import Allocation
    from madbench.mixers.my.operator import ModuleMixer

PREFIX = "my:"


@dataclass(frozen=True)
class Label:
    """The dotted path of a class or function that makes a module."""

    path: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.path}"


@dataclass(frozen=True)
class Settings:
    """A user's modules have no settings besides label and size."""


@dataclass(frozen=True)
class ModuleFamily(ListedFamily):
    """See :class:`madbench.mixers.Family`. A module that is not causal is refused, unless it is to be measured so."""

    is_refused: bool = True

    name = "my"
    names_code = True
    version = "1"
    Settings = Settings
    description = "Any torch module of yours, as it is: parameters are counted, and no rank is chosen."
    syntax = "module.Class|entry"
    example = "my:mean"

    def text_of(self, value: Any) -> str | None:
        """The label of a class or function that makes a module; None for anything else."""
        if not callable(value):
            return None
        label = f"{PREFIX}{path_of(value)}"
        trust.allow([label])  # its code is in this process already
        return label

    def parse(self, text: str) -> Label:
        """``my:module.Class``, also with a colon before the class, or ``my:NAME`` of an entry. Imports nothing."""
        path = text.removeprefix(PREFIX).replace(":", ".")
        if not text.startswith(PREFIX) or not is_path(path):
            path_by_name = SAMPLE | entries()
            if path not in path_by_name:
                hint = did_you_mean(path[:60], path_by_name) or f"; write 'NAME: module:Class' in {FILE}"
                raise LabelError(point_at(text, len(PREFIX), f"no module of this name{hint}"))
            path = path_by_name[path]
        return Label(path)

    def identity(self, label: Label) -> str:
        """A hash of the code that decides what the module computes."""
        from madbench.mixers.my.code import users_code

        return users_code(label.path).identity

    def code(self, label: Label) -> dict[str, Any]:
        """The files of that code with their digests, for the record (:mod:`madbench.identity.listing`)."""
        from madbench.mixers.my.code import users_code

        return users_code(label.path).listing

    def labels(self) -> list[Label]:
        """Labels that have an entry and can be imported."""
        importable = []
        for path in dict.fromkeys(entries().values()):
            try:
                source(path)
            except MadbenchError:
                continue
            importable.append(Label(path))
        return importable

    def preset_spelling(self, label: Label) -> str:
        """``my:NAME``, where the label has an entry."""
        name = next((name for name, path in entries().items() if path == label.path), label.path)
        return f"{PREFIX}{name}"

    def factors(self, label: Label) -> dict[str, str]:
        """The module."""
        return {"module": label.path}

    def explain(self, label: Label) -> list[Explanation]:
        """What the module says of itself, where it is, and its budget."""
        made = source(label.path)
        lines = inspect.cleandoc(made.make.__doc__ or "").splitlines()  # its own, not one of a class it inherits from
        what = lines[0] if lines else "A module of your own, without a docstring."
        where = made.file.name if made.file else "compiled"
        name = label.path.rpartition(".")[2]
        budget = "Its parameters are what they are; no ranks are chosen, and tables show the ratio to softmax's."
        return [
            Explanation(name, "module", what, "", f"{made.module} ({where})"),
            Explanation("", "budget", budget, "", "measured on the module"),
        ]

    def traits(self, label: Label) -> Traits:
        """The output maps as measured; its initial weights are its own."""
        from madbench.mixers.my.measures import traits

        return traits(label)

    def solve(self, label: Label, size: Size, settings: Settings) -> Allocation:
        """What the module costs; a ``BudgetError`` where it cannot be made, or is not causal."""
        from madbench.mixers.my.measures import measured

        allocation = measured(label, size)
        if allocation.leak and self.is_refused:
            raise BudgetError(f"{label} {allocation.leak}. madbench verify {label} measures it")
        return allocation

    def build(self, allocation: Allocation, settings: Settings, path: str = "auto") -> ModuleMixer:
        from madbench.mixers.my.operator import ModuleMixer

        return ModuleMixer(allocation, path)

    def checks(self, label: Label) -> Iterable[Check]:
        """What any mixer has to hold, and that every parameter decides something."""
        family = dataclasses.replace(self, is_refused=False)
        yield from general_checks(family, label)

        def leaks() -> float:
            return float(bool(family.solve(label, SMALL, Settings()).leak))

        statement = "In training and evaluation rows see no later token, no other example and no earlier call."
        yield Check("alone", statement, "causal mixing", leaks)

        def unused() -> float:
            from madbench.mixers.checks import sample
            from madbench.mixers.path_checks import outcome

            mixer, x = sample(family, label)
            gradients = outcome(mixer, mixer, x, None)
            return sum(float(gradient.norm()) == 0 for name, gradient in gradients.items() if name)

        statement = "Every parameter decides something of the output."
        yield Check("use", statement, "autograd", unused)


FAMILY = ModuleFamily()
