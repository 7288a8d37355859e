"""The commands that would train the runs of a table again, as lists of words for a shell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.config import Override, seed_list
from madbench.jobs import Budget, Job
from madbench.labels import is_shown_as_stored
from madbench.labels.budgets import budget_words
from madbench.rows import Grid, SuiteRow
from madbench.store.results_folder import RESULTS
from madbench.suites.corpora import StoredCorpus
from madbench.suites.protocol import Protocol
from madbench.suites.suite_profiles import OWN_PROFILE

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

_USUAL = {
    "--fidelity": Grid.fidelity,
    "--tokenizer": "gpt2",  # with it and the next value, a corpus of nanoGPT is read
    "--dtype": "uint16",
    "--results": str(RESULTS),
}
"""The default values of options, which a command need not state. The default of ``--profile`` depends on the suite."""


def train_words(
    row: SuiteRow, results: Path, labels: Sequence[str], seeds: Collection[int], tasks: Sequence[str] | None = None
) -> list[str]:
    """The words of the ``madbench run`` command that trains ``labels`` with ``seeds`` under the protocol of ``row``.

    ``tasks`` are by default all tasks of the protocol.
    """
    protocol = row.protocol
    without_effect = set(map(str, _without_effect(protocol, labels)))
    words = [word for word in protocol_words(row, results) if word not in without_effect]
    options = ["-t", ",".join(tasks or protocol.tasks)]
    return ["madbench", "run", *labels, *options, "--seeds", seed_list(seeds), *words]


def _without_effect(protocol: Protocol, labels: Sequence[str]) -> list[Override]:
    """The overrides of a protocol that have no effect on any of the labels.

    Empty if the code of a label must not be run, because the effect of overrides is then unknown.
    """
    if not protocol.profile.overrides or any(map(is_shown_as_stored, labels)):
        return []
    without_effect = protocol.plan(labels, [0]).without_effect
    return [override for override, of_labels in without_effect.items() if set(labels) <= of_labels.keys()]


def protocol_words(row: SuiteRow, results: Path) -> list[str]:
    """The words for ``madbench run`` that select the protocol of ``row``: overrides and options, but no tasks."""
    protocol = row.protocol
    name, overrides = protocol.profile_name, list(protocol.overrides)
    if name == OWN_PROFILE:
        name = protocol.suite.default
        overrides = protocol.suite.Profile.load(name).changes(row.jobs[0])
    return _words(protocol, name, overrides, results)


def job_words(row: SuiteRow, job: Job, results: Path) -> list[str]:
    """The words for ``madbench`` that train only ``job``, one of the jobs of ``row``: ``run``, overrides and options.

    The label and the seed of the job are not included.
    """
    protocol = row.protocol
    name = protocol.profile_name
    if name == OWN_PROFILE:
        return ["run", "-t", job.task, *protocol_words(row, results)]
    own_changes = protocol.profile.loaded.job_changes(job)
    changes = protocol.suite.Profile.load(name, own_changes).changes(job)
    return ["run", "-t", job.task, *_words(protocol, name, [*changes, *own_changes], results)]


def _words(protocol: Protocol, name: str, changes: Sequence[Override], results: Path) -> list[str]:
    """The words for ``changes`` to the profile ``name``, and for the options that select it and ``protocol``."""
    is_said = protocol.suite.Profile.load(name, changes).precision == protocol.precision
    precision = [] if is_said else [f"precision={protocol.precision}"]
    profile = None if name == protocol.suite.default else name
    options = option_words({"--profile": profile, "--fidelity": protocol.fidelity}, protocol.budget)
    data = option_words({**_corpus_options(protocol.corpus), "--results": str(results)})
    return [*map(str, changes), *precision, *options, *data]


def _corpus_options(corpus: Corpus | StoredCorpus | None) -> dict[str, str]:
    """The command-line options, with values, that select the corpus of stored runs. Empty for the default corpus."""
    if not isinstance(corpus, StoredCorpus) or corpus.folder is None or corpus.name.startswith("stdlib-"):
        return {}
    return {"--corpus": str(corpus.folder), **corpus.options}


def option_words(options: Mapping[str, str | None], budget: Budget | None = None) -> list[str]:
    """The words for the options that are not at their defaults, and for the budget unless it is ``strict``.

    ``options`` has values by option. Those that are None are left out.
    """
    changed_options = (
        (option, value) for option, value in options.items() if value is not None and value != _USUAL.get(option)
    )
    words = [word for pair in changed_options for word in pair]
    return words if budget in (None, "strict") else [*words, *budget_words(budget)]
