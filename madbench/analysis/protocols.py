"""Lists of the stored protocols, from which a user can choose one. Runs of two protocols never share a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from madbench.analysis.query import Query, first_labels
from madbench.config import Override
from madbench.errors import StoreError
from madbench.experiment.commands import option_words
from madbench.jobs import Budget, Job
from madbench.rows import Grid
from madbench.store.reading import Run
from madbench.store.results_folder import RESULTS, command_on, training_command
from madbench.suites import Suite, main_suite
from madbench.suites.profile import is_rate_change
from madbench.suites.protocol import RatesTried, by_protocol, recognize_protocol
from madbench.suites.suite_profiles import OWN_PROFILE


class NothingStored(StoreError):
    """Raised if no stored run has the requested protocol.

    ``reason`` is the message without the list of the stored protocols.
    """

    reason = ""


def nothing_stored(query: Query, suite: Suite, name: str) -> NothingStored:
    """Make the error for a query if the profile ``name`` of the suite has no stored run that matches it.

    The message has a command that trains such a run, and commands that show the stored protocols.
    """
    stored_jobs, overrides = query.jobs_of(suite), query.own_overrides(suite)
    fidelity, budget = suite.fidelity_of(query.fidelity), query.budget or "strict"
    has_fidelities = len(suite.fidelities) > 1
    changes = with_changes(overrides)
    of_fidelity = f", fidelity {fidelity}" if has_fidelities else ""
    terms = f"{suite.Profile.noun} {name}{changes}{of_fidelity}, budget {budget}"
    number = len(stored_jobs)
    which = "its only run does not belong" if number == 1 else f"none of its {number:,} runs belongs"
    reason = f"{which} to {terms}; "
    choice_words = _choice_words(suite, name, fidelity, budget)
    task_words = ["-t", ",".join(query.tasks_of(suite))] if query.tasks or suite is not main_suite() else []
    words = [*map(str, overrides), *task_words, *choice_words]
    hint = f"{training_command(query.results, *words)} makes some"
    if query.labels:
        command = training_command(query.results, *words, labels=query.labels)
        reason, hint = f"no run of {' or '.join(query.labels)} belongs to {terms}; this trains it:\n  {command}\n", ""
    protocols = protocol_list(suite, query.runs_of(stored_jobs), query.results)
    shows = "each of these commands shows one protocol" if "\n" in protocols else "this shows what is stored"
    error = NothingStored(f"{query.results}: {reason}{shows}:\n{protocols}")
    error.reason = f"{query.results}: {reason}{hint}".strip()
    return error


def with_changes(overrides: Sequence[Override]) -> str:
    """The words that follow a profile's name in a message, such as `` with training.epochs=3``. Empty without any."""
    return f" with {' '.join(map(str, overrides))}" if overrides else ""


def _choice_words(suite: Suite, profile: str, fidelity: str, budget: Budget) -> list[str]:
    """The command-line options that choose a profile, fidelity and budget. Default values are left out."""
    profile_option = {} if profile == suite.default else {"--profile": profile}
    is_usual = fidelity == suite.fidelity_of(Grid.fidelity)
    return option_words({**profile_option, **({} if is_usual else {"--fidelity": fidelity})}, budget)


def protocol_list(suite: Suite, runs: Iterable[Run], results: Path = RESULTS) -> str:
    """A text with one line per protocol of ``runs``, which must be runs of ``suite``.

    If runs were trained on a corpus, a line begins with the id and the settings of the protocol. Otherwise, it begins
    with the command that shows the protocol in the store ``results``. It ends with the labels of the protocol.
    """
    runs = list(runs)
    has_corpus = any(suite.corpus_of(run.job) for run in runs)
    return _by_id(suite, runs) if has_corpus else _by_command(suite, runs, results)


def _by_id(suite: Suite, runs: Sequence[Run]) -> str:
    lines = []
    for name, of_protocol in by_protocol(suite, runs, lambda run: run.job).items():
        protocol = recognize_protocol(suite, [(run.job, run.record.details) for run in of_protocol])
        corpus = f"corpus {protocol.corpus.name} ({protocol.corpus.digest[:8]}), " if protocol.corpus else ""
        terms = f"{corpus}{protocol.profile.noun} {protocol.name}, {protocol.precision}, budget {protocol.budget}"
        lines.append(f"  {name}  {terms}: {first_labels(run.job.label for run in of_protocol)}")
    return "\n".join(lines)


def _by_command(suite: Suite, runs: Sequence[Run], results: Path) -> str:
    """One line per protocol of ``runs``, with the command that shows the protocol, and its labels.

    A label may have been trained at learning rates or weight decays that its profile does not try. Then the command for
    the label lists all its learning rates and weight decays. If the label was also trained at all those of the profile,
    the line of the unchanged profile has the label, too.
    """
    tasks = ",".join(suite.usual_tasks())
    alike: dict[tuple[Any, ...], list[Job]] = defaultdict(list)
    for job in (run.job for run in runs):
        key = (job.task, job.fidelity, job.budget, str(job.setting), str(job.mixer), job.model, job.training)
        alike[key].append(job)
    rates_by_row: dict[tuple[str, ...], dict[str, RatesTried]] = defaultdict(lambda: defaultdict(RatesTried))
    for jobs in alike.values():
        job = jobs[0]
        name, changes = suite.nearest(job)
        profile, precision = suite.shipped().get(name), job.training.precision
        profile_words = name if name != OWN_PROFILE else f"YAML with model.d_model={getattr(job.model, 'd_model', '?')}"
        others = [str(change) for change in changes if not is_rate_change(change)]
        if profile is None or profile.precision != precision:  # "auto" depends on the machine
            others.append(f"precision={precision}")
        others += _choice_words(suite, profile_words, job.fidelity, job.budget)
        words = (*others, *(["-t", tasks] if suite is not main_suite() else []))
        for label in {one_job.label for one_job in jobs}:
            rates_by_row[words][label].add(job, profile)
    labels: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for words, of_label in rates_by_row.items():
        for label, rates in of_label.items():
            of_rates = map(str, rates.changes)
            if rates.has_usual or not rates.changes:
                labels[words].append(label)
            if rates.changes:
                labels[(*of_rates, *words)].append(label)
    return "\n".join(
        f"  {command_on(results, 'table', *words)}  # {first_labels(of_words)}" for words, of_words in labels.items()
    )
