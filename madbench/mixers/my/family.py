"""The family of users' own modules, with labels such as ``my:my_mixers.GatedMean``.

Parameters are counted, and no rank is chosen.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from madbench.errors import LabelError, MadbenchError, ModuleError, did_you_mean
from madbench.labels import Explanation, trust
from madbench.labels.diagnosis import point_at
from madbench.mixers import Check, ListedFamily, Size, Traits
from madbench.mixers.checks import SMALL, general_checks
from madbench.mixers.my.arguments import arguments_of, dotted, read_arguments, written
from madbench.mixers.my.sources import FILE, SAMPLE, entries, is_path, may_import, path_of, source

if TYPE_CHECKING:
    from madbench.mixers.my.measures import ModuleAllocation
    from madbench.mixers.my.operator import ModuleMixer

PREFIX = "my:"


@dataclass(frozen=True)
class ModuleLabel:
    """A ``my:`` label: the dotted path of a class or function that makes a module, and its arguments in parentheses."""

    path: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.path}"


@dataclass(frozen=True)
class Settings:
    """The settings of users' modules: none besides the label and the size."""


if TYPE_CHECKING:
    OwnSettings: TypeAlias = Settings  # in the family, its attribute hides this name


@dataclass(frozen=True)
class ModuleFamily(ListedFamily[ModuleLabel, "ModuleAllocation"]):
    """The family of users' own modules.

    If ``is_refused`` is true, ``solve`` raises ``ModuleError`` for a module that is not causal.
    """

    is_refused: bool = True

    name = "my"
    names_code = True
    version = "1"
    matches = ("flops", "state")
    Settings = Settings
    description = "Any torch module of yours, unchanged: parameters are counted, and no rank is chosen."
    syntax = "module.Class|entry[(name=value,...)]"
    example = "my:mean"

    def text_of(self, value: Any) -> str | None:
        """The text of the label for a class or function that makes a module. None for a value that cannot be called.

        From now on the code of this label may be imported, because the value shows that it was imported already. Raises
        ``LabelError`` if other processes cannot import the value.
        """
        if not callable(value):
            return None
        label = f"{PREFIX}{path_of(value)}"
        trust.allow([label])  # the value shows that its code has been imported already
        return label

    def parse(self, text: str) -> ModuleLabel:
        """Parse ``my:module.Class``, ``my:module:Class``, or ``my:NAME`` with the name of an entry.

        Arguments in parentheses may follow. Nothing is imported. Raises ``LabelError`` for an invalid label or unknown
        name.
        """
        place, opening, _ = text.partition("(")
        arguments = read_arguments(text, len(place)) if opening else ""
        path = place.removeprefix(PREFIX).replace(":", ".")
        if not text.startswith(PREFIX) or not is_path(path):
            path_by_name = SAMPLE | entries()
            if path not in path_by_name:
                hint = did_you_mean(path[:60], path_by_name) or f"; write 'NAME: module:Class' in {FILE}"
                raise LabelError(point_at(text, len(PREFIX), f"no module of this name{hint}"))
            path = path_by_name[path]
        return ModuleLabel(f"{path}{arguments}")

    def identity(self, label: ModuleLabel) -> str:
        """A hash of the code on which the module's results depend.

        Raises ``LabelError`` if a file of this code was edited after this process imported it.
        """
        from madbench.mixers.my.code import users_code

        return users_code(label.path).identity

    def code(self, label: ModuleLabel) -> dict[str, Any]:
        """A listing of the files on which the module's results depend, with digests.

        :mod:`madbench.identity.listing` describes it.
        """
        from madbench.mixers.my.code import users_code

        return users_code(label.path).listing

    def may_import(self, label: ModuleLabel) -> bool:
        """True if the code of the label may be imported: the user allowed the label, or an entry names its class.

        An entry is a line of ``mixers.yaml``, or an entry point of an installed package. Entries count only if
        :func:`madbench.labels.trust.trusts_entries` is true.
        """
        return may_import(label.path)

    def labels(self) -> list[ModuleLabel]:
        """The labels of all entries whose class or function can be imported.

        An entry is a line of ``mixers.yaml``, or an entry point of an installed package.
        """
        importable = []
        for path in dict.fromkeys(entries().values()):
            try:
                source(path)
            except MadbenchError:
                continue
            importable.append(ModuleLabel(path))
        return importable

    def preset_spelling(self, label: ModuleLabel) -> str:
        """The label's text with the name of an entry in place of the path, as ``my:NAME``. Arguments are kept.

        An entry is a line of ``mixers.yaml``, or an entry point of an installed package. If no entry has the label's
        path, the text is not changed.
        """
        place, arguments = dotted(label.path), label.path[len(dotted(label.path)) :]
        name = next((name for name, path in entries().items() if path == place), place)
        return f"{PREFIX}{name}{arguments}"

    def factors(self, label: ModuleLabel) -> dict[str, str]:
        """The factors of a label by name: ``module``, the dotted path, and ``arguments``, all arguments as one text."""
        return {"module": dotted(label.path), "arguments": written(arguments_of(label.path))}

    def explain(self, label: ModuleLabel) -> list[Explanation]:
        """The explanation of a label: rows for the module, for each argument, for the budget and for decoding.

        The row of the module has the first line of its docstring and the name of its file.
        """
        from madbench.mixers.my.operator import check_arguments, own_fit, takes_steps

        check_arguments(label.path)
        made = source(label.path)
        lines = inspect.cleandoc(made.make.__doc__ or "").splitlines()  # its own docstring, not an inherited one
        what = lines[0] if lines else "A module of your own, without a docstring."
        where = made.file.name if made.file else "compiled"
        name = dotted(label.path).rpartition(".")[2]
        budget = "No rank is chosen to match a budget; tables show the ratio of its parameters to softmax attention's."
        if own_fit(made.make):
            budget = "Its fit chooses its arguments for the budget; tables show the ratio of its parameters to it."
        decoding = "Every token reads all tokens again; step(x, state) -> (y, state) of the module would replace this."
        if takes_steps(made.make):
            decoding = "Its own step, with the state that it returns."
        return [
            Explanation(name, "module", what, "", f"{made.module} ({where})"),
            *(
                Explanation(f"({written({key: value})})", key, "", "", "this label")
                for key, value in arguments_of(label.path).items()
            ),
            Explanation("", "budget", budget, "", "measured on the module"),
            Explanation("", "decoding", decoding, "", "the module"),
        ]

    def traits(self, label: ModuleLabel) -> Traits:
        """The traits of the module.

        A measurement finds the weights that write to the residual stream. All initial values that the module sets are
        kept.
        """
        from madbench.mixers.my.measures import traits

        return traits(label)

    def takes_layer(self, label: ModuleLabel) -> bool:
        """True if the module requires the index of its layer, or the number of layers, as an argument."""
        from madbench.mixers.my.operator import takes_layer

        return takes_layer(label.path)

    def solve(self, label: ModuleLabel, size: Size, settings: OwnSettings) -> ModuleAllocation:
        """The cost of the module at a size. Raises ``ModuleError`` if it cannot be built or is not causal.

        Mixing the examples of a batch and keeping state between calls count as not causal.
        """
        from madbench.mixers.my.measures import measure_cost

        allocation = measure_cost(label, size)
        if allocation.leak and self.is_refused:
            raise ModuleError(f"{label} {allocation.leak}. Run madbench verify {label} for details")
        return allocation

    def build(self, allocation: ModuleAllocation, settings: OwnSettings, path: str = "auto") -> ModuleMixer:
        from madbench.mixers.my.operator import ModuleMixer

        return ModuleMixer(allocation, path)

    def checks(self, label: ModuleLabel) -> Iterable[Check]:
        """Yield the checks that apply to every mixer, and two more.

        One checks that output rows see no later token, no other example and no earlier call. The other checks that
        every parameter has an effect.
        """
        from madbench.mixers.my.operator import make, takes_steps

        family = dataclasses.replace(self, is_refused=False)
        decodes = takes_steps(make(label.path, SMALL))
        yield from (check for check in general_checks(family, label) if check.name != "state" or decodes)

        def leaks() -> float:
            return float(bool(family.solve(label, SMALL, Settings()).leak))

        statement = "In training and evaluation, rows see no later token, no other example and no earlier call."
        yield Check("alone", statement, "causal mixing", leaks)

        def unused() -> float:
            from madbench.mixers.checks import sample
            from madbench.mixers.checks.path_checks import evaluate

            mixer, x = sample(family, label)
            gradients = evaluate(mixer, mixer, x, None)
            return sum(float(gradient.norm()) == 0 for name, gradient in gradients.items() if name)

        statement = "Every parameter changes the output."
        yield Check("use", statement, "autograd", unused)


FAMILY = ModuleFamily()
