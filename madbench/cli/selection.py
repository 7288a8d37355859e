"""Which stored runs a verb shows, by the words and options that verbs share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.cli import options
from madbench.cli.options import Budget, Fidelity, argument, labels_and_overrides, option, split_list
from madbench.cli.stored_runs import opened
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from madbench.analysis.stored import Selection


@dataclass(frozen=True)
class StoredOptions:
    """Options of the verbs that show what is stored of both suites."""

    profile: options.ProfileOption = "quick"
    tasks: options.StoredTasksOption = None
    fidelity: options.FidelityOption = Fidelity.corrected
    budget: options.BudgetOption = Budget.strict
    protocol: options.LanguageProtocolOption = None
    results: options.ResultsOption = options.RESULTS

    def selection(self, words: list[str] | None) -> Selection:
        """What words and options mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
        labels, overrides = labels_and_overrides(words or [])
        asked: dict[str, Any] = {"profile": self.profile, "tasks": split_list(self.tasks), "protocol": self.protocol}
        asked |= {"fidelity": self.fidelity.value, "budget": self.budget.value, "overrides": overrides}
        return _selection(labels, self.results, **asked)


LanguageWordsArgument = argument(
    list[str] | None,
    "LABEL|KEY=VALUE",
    options.LABELS_HELP + " All labels in the store by default. KEY=VALUE changes the preset, as for madbench lm.",
)


@dataclass(frozen=True)
class LanguageOptions:
    """Options of the verbs that show stored language models."""

    protocol: option(str | None, "Id of a protocol, as shown where runs of several are found.") = None
    corpus: option(str | None, "Only runs on the corpus of this name, folder or digest.") = None
    preset: option(str | None, "Only runs of this preset; tiny when a KEY=VALUE is given.", "--preset", "-p") = None
    budget: option(
        Budget | None, "Only runs with this parameter budget.", parser=options.parse_budget, metavar="[strict|paper]"
    ) = None

    def selection(self, words: list[str] | None, results: Path) -> Selection:
        """What words and options mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
        from madbench.grid import LANGUAGE_MODEL
        from madbench.suites.language import TASK

        labels, overrides = labels_and_overrides(words or [])
        if self.protocol is not None and (self.corpus or self.preset or overrides or self.budget):
            raise ConfigError(
                f"--protocol {self.protocol}: other choices have no effect beside it; give one or the other"
            )
        changes = [f"language_model={self.preset or 'tiny'}", *(LANGUAGE_MODEL + change for change in overrides)]
        asked = {"overrides": changes if self.preset or overrides else (), "budget": self.budget and self.budget.value}
        return _selection(labels, results, tasks=[TASK], protocol=self.protocol, corpus=self.corpus, **asked)


def _selection(labels: list[str], results: Path, **asked: Any) -> Selection:
    from madbench.analysis.stored import Selection
    from madbench.labels import expand

    return Selection(labels=expand(labels), results=results, opened=opened, warn=warn, **asked)


def warn(message: str) -> None:
    """Prints a warning on stderr."""
    print(f"warning: {message}", file=sys.stderr)
