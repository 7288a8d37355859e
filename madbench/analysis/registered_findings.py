"""The findings on registered claims, and what has changed since the registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from madbench.analysis import findings
from madbench.analysis.claims import Claim, claims_by_paper, load_claims
from madbench.analysis.findings import PROVISIONAL, Finding
from madbench.analysis.quantities import heading
from madbench.analysis.registration import Registration
from madbench.analysis.scores import Results, columns_of
from madbench.analysis.verdict_inputs import TEST, changed_inputs, verdict_inputs
from madbench.config import seed_list
from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.labels.names import display_name
from madbench.rows import TableRows
from madbench.store.edited_code import earlier_runs

EXPLORATORY = "Exploratory, not registered"
OTHER_TEST = "registered with another test"
"""The mark on verdicts if the registration names another statistical test than the present one."""
MOST_CHANGES = 5
"""The largest number of changed values that a sentence names."""
_WORDING = ("title", "sentence", "source", "theory", "group", "note", "published_by")
"""The keys of a claim that affect no verdict. ``published_by`` is one, because the published numbers are registered
too."""
_PROBLEMS = {
    "failed": "failed (madbench sweep --retry)",
    "damaged": "cannot be read (madbench validate --store)",
}


def registered_findings(registration: Registration, results: Results) -> list[Finding]:
    """The findings on the registered claims, followed by exploratory findings on the other claims of the same source.

    The two groups have separate Holm corrections. Registered claims are tested against the registered thresholds. Their
    verdicts have marks if a run is missing, if a registered value changed, if a run ended or may have ended before the
    registration, or if the registration names another test. Exploratory findings without a stored pair of labels are
    left out.
    """
    names = {claim.name for claim in registration.claims}
    marks = _marks(registration, results)
    registered = _registered_findings(registration, results, registered_thresholds(registration))
    others = [claim for claim in _present_claims(registration) if claim.name not in names]
    exploratory = findings.findings(
        results.scores, set(results.scores.column), claims=others, chosen_on=results.chosen_on
    )
    return [replace(row, marks=marks) for row in registered] + [
        replace(row, claim=replace(row.claim, group=EXPLORATORY)) for row in exploratory if not row.missing
    ]


def _marks(registration: Registration, results: Results) -> tuple[str, ...]:
    total, later = len(registration.jobs), len(registration.jobs) - len(early_runs(registration, results))
    marks = {
        PROVISIONAL: lacking_runs(results) or changed_values(registration, results),
        f"registered before {later} of {total} runs": later < total,
        OTHER_TEST: has_other_test(registration),
    }
    return tuple(mark for mark, is_so in marks.items() if is_so)


def early_runs(registration: Registration, results: Results) -> dict[str, str]:
    """The registered runs that ended before the registration (``earlier``) or perhaps did (``unknown``), by job id.

    The end of a run is read from its record. If the record has no time, the value is ``unknown``, except for runs that
    the registration lists as stored. The date of the file is not used, because an import changes it. Failed runs are
    left out.
    """
    began, early = _moment(registration.registered), {}
    for name, record in results.store.records(set(registration.jobs)).items():
        if record.status != "failed":
            end_time = _moment(record.details.get("ended"))
            if name in registration.stored or (end_time and began and end_time < began):
                early[name] = "earlier"
            elif not end_time:
                early[name] = "unknown"
    return early


def _moment(text: object) -> datetime | None:
    """The time in a text of ISO format. A time without a time zone is in UTC. None if ``text`` is no such text."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def registered_thresholds(registration: Registration) -> findings.Thresholds:
    """The registered thresholds, by the name of the claim and then by column. Thresholds that are None are left out."""
    thresholds = registration.thresholds["lines"]
    return {
        claim: {name: threshold for name, threshold in of_claim.items() if threshold is not None}
        for claim, of_claim in thresholds.items()
    }


def _registered_findings(
    registration: Registration, results: Results, thresholds: findings.Thresholds
) -> list[Finding]:
    columns = columns_of(results)
    claims, chosen_on = registration.claims, results.chosen_on
    return findings.findings(results.scores, columns, claims=claims, thresholds=thresholds, chosen_on=chosen_on)


def lacking_runs(results: Results) -> dict[str, str]:
    """The reason why each job without a result has none, by the id of the job. Jobs with a result are left out.

    The reason is ``not stored``, ``failed``, or ``damaged`` if the stored run cannot be read.
    """
    jobs = [job.id for job in results.jobs]
    stored_ids, records = set(results.store.job_ids()), results.store.records(set(jobs))
    lacking = {}
    for name in jobs:
        if name not in records:
            lacking[name] = "damaged" if name in stored_ids else "not stored"
        elif records[name].status == "failed":
            lacking[name] = "failed"
    return lacking


def changed_values(registration: Registration, table: TableRows) -> list[str]:
    """The registered values that verdicts depend on and that have changed since the registration, as texts.

    A text has the name of the value, the registered value and the present value. ``table`` has the present rows and
    jobs. If another test was registered, only values that both tests have are compared.
    """
    registered_values, present_values = registration.thresholds, verdict_inputs(registration.claims, table)
    if has_other_test(registration):  # another test has other values, so only names that both have are compared
        registered_values = {name: value for name, value in registered_values.items() if name in present_values}
        present_values = {name: value for name, value in present_values.items() if name in registered_values}
    return changed_inputs(registered_values, present_values)


def has_other_test(registration: Registration) -> bool:
    """True if the claims were registered with another statistical test than the present one, or another version."""
    return registration.test != TEST


def changed_claims(registration: Registration) -> list[str]:
    """The registered claims that have changed since the registration, or no longer exist, as texts.

    A text has the name of the claim and its changed keys. Changes of wording do not count.
    """
    present_claims = {claim.name: asdict(claim) for claim in _present_claims(registration)}
    changed_names = []
    for claim in registration.claims:
        now = present_claims.get(claim.name, {})
        keys = [key for key, value in asdict(claim).items() if key not in _WORDING and now.get(key) != value]
        if keys:
            changed_names.append(f"{claim.name} ({', '.join(keys) if now else 'no longer there'})")
    return changed_names


def _present_claims(registration: Registration) -> tuple[Claim, ...]:
    """All claims that are in the source of the registered claims now. Empty if the source cannot be read.

    If the registration has no ``claims_from``, the source is the paper that has the most claims with registered names.
    """
    try:
        if registration.claims_from:
            return load_claims(registration.claims_from)
        names = {claim.name for claim in registration.claims}
        shared = {
            paper: len(names & {claim.name for claim in of_paper}) for paper, of_paper in claims_by_paper().items()
        }
        return load_claims(max(shared, key=shared.__getitem__))
    except ConfigError:
        return ()


def changed_sentence(changes: Sequence[str]) -> str:
    """A sentence that names the values that changed after a registration, and says that the verdicts are provisional.

    ``changes`` are the texts of :func:`changed_values`. The sentence has the first :data:`MOST_CHANGES` of them.
    """
    and_more = f"; and {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    return f"Changed values: {'; '.join(changes[:MOST_CHANGES])}{and_more}. The verdicts are provisional."


def registration_notes(registration: Registration, path: Path, results: Results) -> list[str]:
    """Sentences on the registration in the file ``path``, for readers of its findings.

    The first sentence has the time and the id of the registration. The others are there only if they apply. They say:

    - which runs ended before the registration or have no end time;
    - that the registration names another test than the present one, which registered values have changed, and which
      verdicts would be different with the present thresholds;
    - which claims have changed;
    - which registered runs are missing and why, and that the verdicts are provisional until all are stored.
    """
    return [
        f"Registered {registration.registered} UTC as {registration.id} ({path.name}).",
        *_early_sentences(registration, results),
        *_change_sentences(registration, results),
        *_missing_sentences(results),
    ]


def _early_sentences(registration: Registration, results: Results) -> list[str]:
    jobs = {job.id: job for job in results.jobs}
    early = early_runs(registration, results)
    sentences = []
    for moment, words in {"earlier": "ended before the registration", "unknown": "have no end time"}.items():
        if early_jobs := [job for name, job in jobs.items() if early.get(name) == moment]:
            sentences.append(
                f"{len(early_jobs)} of {len(jobs)} runs {words}; verdicts that use them are exploratory: "
                f"{_names_text(early_jobs)}"
            )
    return sentences


def _change_sentences(registration: Registration, results: Results) -> list[str]:
    """Sentences on another test, on changed values and on changed claims."""
    sentences = []
    if has_other_test(registration):
        with_test = " ".join(map(str, registration.test.values())) or "an unnamed test"
        sentences.append(f"Registered with {with_test}; judged by {TEST['name']} {TEST['version']}.")
    value_changes = changed_values(registration, results)
    if value_changes:
        sentences.append(changed_sentence(value_changes))
    if any(name.startswith("lines.") for name in value_changes):
        findings_by_lines = (
            _registered_findings(registration, results, thresholds)
            for thresholds in (registered_thresholds(registration), {})
        )
        other_verdicts = [
            f"{present_finding.claim.title}, {heading(present_finding.quantity)}: {present_finding.verdict}"
            for registered_finding, present_finding in zip(*findings_by_lines)
            if registered_finding.verdict != present_finding.verdict
        ]
        sentences.append(f"With the present thresholds: {'; '.join(other_verdicts) or 'the same verdicts'}.")
    if others := changed_claims(registration):
        sentences.append(f"Claims changed after the registration, judged as registered: {', '.join(others)}.")
    return sentences


def _missing_sentences(results: Results) -> list[str]:
    """Sentences on the registered runs without a result. Empty if there are none."""
    jobs, lacking = {job.id: job for job in results.jobs}, lacking_runs(results)
    if not lacking:
        return []
    sentences = [f"{len(lacking)} of {len(jobs)} registered runs are not stored yet."]
    for problem, words in _PROBLEMS.items():
        if names := [name for name, reason in lacking.items() if reason == problem]:
            sentences.append(f"{len(names)} of these {words}: {_names_text([jobs[name] for name in names])}")
    for other in earlier_runs((jobs[name] for name in lacking), results.store):
        sentences.append(
            f"{other.runs_text} used other code than was registered: restore that code, or register again."
        )
    sentences.append("The verdicts are provisional until all runs are stored.")
    sentences.append("These p-values assume a single look, at the registered seeds.")
    return sentences


def _names_text(jobs: Sequence[Job]) -> str:
    """The labels and the seeds of jobs as text."""
    labels = ", ".join(map(display_name, dict.fromkeys(job.label for job in jobs)))
    return f"{labels}; seeds {seed_list({job.seed for job in jobs})}."
