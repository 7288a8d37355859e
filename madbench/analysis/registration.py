"""Registrations: claims, labels, tasks, seeds and thresholds that are stated before the runs exist.

A registration is a JSON file beside the YAML file of a grid. It contains a hash of its content, so that changes are
detected. The content has every value that a verdict depends on and that is in no job: levels, shares and margins, the
claims with their thresholds, the published numbers, and chance and resolution of each column. A verdict is provisional
while a registered run is missing or one of these values has changed. The p-values assume that the results are tested
once, with the registered number of seeds. Further seeds are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from madbench.analysis.claims import CLAIMS_LISTED, Claim, claims_by_paper, load_claims
from madbench.analysis.quantities import heading
from madbench.analysis.scores import Results, columns_of
from madbench.analysis.verdict_inputs import TEST, verdict_inputs
from madbench.config import from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, StoreError, did_you_mean
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.files import output_file, parse_json, read_file, write_atomically
from madbench.grid import GridFile, expand_grid
from madbench.jobs import content_id
from madbench.store.edited_code import earlier_runs
from madbench.store.reading import Snapshot
from madbench.suites.planning import StoredCode, codes_of, plan_as_stored

SUFFIX = ".registered.json"
FORM = 3
"""The version of the file format. A file of form 2 has a hash of code in place of ``test``. It can still be read, as a
registration with another test."""


@dataclass(frozen=True)
class Registration:
    """The content of a registration file, which :func:`register` writes."""

    form: int
    registered: str
    """The time of the registration in UTC, such as ``2026-03-14 15:09:26``."""
    grid: dict[str, Any]
    """The content of the registered YAML file of a grid."""
    claims: tuple[Claim, ...]
    jobs: tuple[str, ...]
    """The ids of all runs of the grid, which decide the claims."""
    stored: tuple[str, ...]
    """The ids of those runs that already had a result at the time of the registration."""
    thresholds: dict[str, Any]
    """All values that verdicts depend on and that are in no job, not only thresholds: the result of
    :func:`madbench.analysis.verdict_inputs.verdict_inputs`."""
    id: str
    """The hash of all other content of the file."""
    test: dict[str, Any] = field(default_factory=dict)
    """The name and the version of the statistical test that judges the claims. Empty in files of form 2
    (:data:`FORM`)."""
    analysis: str = ""
    """In files of form 2 (:data:`FORM`), a hash of the code that tested the claims. Otherwise empty."""
    claims_from: str = ""
    """The source of the claims: the path of a file, or the name of a paper. Empty in older registrations."""
    code: dict[str, Any] = field(default_factory=dict)
    """The identity of code outside of this package, by label. It is needed to plan the same jobs after the code was
    edited."""


def register(path: Path, results: Path, claims_from: str = "") -> tuple[Registration, Experiment, Path]:
    """Register the grid in the YAML file ``path``: write its registration beside it.

    Return the registration, the planned experiment, and the path of the registration.

    The YAML file has the keys of a grid, and two more:

    - ``claims``: the names of the claims to register. By default, all claims of the source for which the grid has the
      labels and at least one of the columns.
    - ``claims_from``: the source of the claims, which is the name of a paper, or a file of claims relative to the
      folder of the grid. The argument ``claims_from`` can give the source instead. If neither is given, the source is
      the only paper that has these claims.

    Raises ``ConfigError`` in the cases of :func:`madbench.experiment.prepare`, and in these cases:

    - The registration already exists.
    - The file and the argument give different sources.
    - The source lacks a named claim, or the grid cannot decide it.
    - The grid can decide no claim of the source.
    - No source is given, and no paper or several papers have these claims.
    """
    mapping = read_yaml(path)
    target = path.with_name(path.stem + SUFFIX)
    if target.exists():
        raise ConfigError(f"{target}: registered already; copy {path} under another name and register that file")
    experiment = _prepare(mapping, results, str(path))
    mapping |= {"profile": experiment.grid.profile or experiment.grid.leading.default}  # a later default may differ
    grid = from_mapping(GridFile, mapping, str(path))
    if grid.claims_from and claims_from not in ("", grid.claims_from):
        raise ConfigError(f"{path}: claims_from: {grid.claims_from}, and --claims {claims_from}; give only one")
    claim_names = grid.claims
    claims_from = grid.claims_from or claims_from or _paper_with(claim_names, experiment, str(path))
    claims = load_claims(_resolve_claims(path, claims_from) if grid.claims_from else claims_from)
    if unknown := [name for name in claim_names if name not in {claim.name for claim in claims}]:
        remedy = f"these are the claims of {claims_from}; for your own claims write claims_from: FILE.yaml"
        hint = did_you_mean(unknown[0], [claim.name for claim in claims])
        raise ConfigError(f"{path}: claims: no claim {short_repr(unknown[0])}{hint}; {remedy}")
    frozen = _claims(claim_names, claims, experiment, str(path))
    has_runs = (results / "runs").is_dir()
    present = Snapshot.open(results).records({job.id for job in experiment.jobs}) if has_runs else {}
    content = {
        "form": FORM,
        "registered": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        "grid": mapping,
        "claims": [asdict(claim) for claim in frozen],
        "jobs": [job.id for job in experiment.jobs],
        "stored": [name for name, record in present.items() if record.status != "failed"],
        "thresholds": verdict_inputs(frozen, experiment),
        "test": TEST,
    }
    content["claims_from"] = claims_from
    if code := codes_of(experiment.jobs):
        content["code"] = {label: asdict(stored_code) for label, stored_code in code.items()}
    content["id"] = content_id(content)
    write_atomically(output_file(target), (json.dumps(content, indent=2) + "\n").encode())
    return from_mapping(Registration, content, str(target)), experiment, target


def load_registration(path: Path, results: Path) -> tuple[Registration, Results]:
    """Read the registration in the file ``path`` and the results of its runs in the store ``results``.

    Raises ``ConfigError`` if the file is no registration, has an unknown version of the format, or was changed after it
    was written, and if the installed code would train other runs for the registered grid. Raises ``StoreError`` if the
    store has no runs.
    """
    try:
        content = parse_json(read_file(path))
        own_id, content_of_id = content["id"], {name: value for name, value in content.items() if name != "id"}
        is_as_written = content_id(content_of_id) == own_id
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path}: cannot be read: {reason}; madbench register FILE makes a registration") from None
    except ValueError:
        registration_path = path.with_name(path.stem + SUFFIX)
        hint = (
            f"did you mean {registration_path}?" if registration_path.is_file() else "madbench register FILE makes one"
        )
        raise ConfigError(f"{path}: not a registration, which is a file of JSON; {hint}") from None
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(f"{path}: not a registration: it has no id; madbench register FILE makes one") from None
    if not is_as_written:
        raise ConfigError(f"{path}: changed after it was registered; its content does not have the hash {own_id}")
    if (form := content.get("form", 1)) not in (2, FORM):
        raise ConfigError(
            f"{path}: registered by another version of madbench, in form {form} of the file where this one reads forms"
            f" 2 and {FORM}; read it with the version that registered it, or register again under another name"
        )
    registration = from_mapping(Registration, content, str(path))
    if claims_from := registration.grid.get("claims_from"):
        registration = replace(registration, claims_from=_resolve_claims(path, claims_from))
    if not (results / "runs").is_dir():
        raise StoreError(f"{results}: holds no runs; madbench sweep trains what was registered")
    store = Snapshot.open(results)
    with plan_as_stored(_codes(registration, store)):
        experiment = _prepare(registration.grid, results, str(path))
    if [job.id for job in experiment.jobs] != list(registration.jobs):
        raise ConfigError(f"{path}: {_why_other_runs(registration, experiment, store)}")
    return registration, Results.from_rows(experiment, store)


def _resolve_claims(path: Path, claims_from: str) -> str:
    """Turn the key ``claims_from`` of the grid in the file ``path`` into a source for :func:`load_claims`.

    The path of a file of claims is relative to the folder of the grid. The name of a paper is returned unchanged.
    """
    return str(path.parent / claims_from) if claims_from.endswith((".yaml", ".yml")) else claims_from


def _codes(registration: Registration, store: Snapshot) -> dict[str, StoredCode]:
    """The identity of the code outside of this package that registered runs use, by label.

    It is read from the registration, or from stored runs if an older registration does not have it.
    """
    if registration.code:
        return {
            label: from_mapping(StoredCode, fields, f"code of {label}") for label, fields in registration.code.items()
        }
    stored_jobs = store.jobs()
    return codes_of(stored_jobs[name] for name in registration.jobs if name in stored_jobs)


def _why_other_runs(registration: Registration, experiment: Experiment, store: Snapshot) -> str:
    """An error message for a registration whose runs are not the jobs of ``experiment``, planned by the installed code.

    It gives the reason and what to do.
    """
    pairs = zip(registration.jobs, experiment.jobs)
    other = [job for name, job in pairs if job.id != name] if len(registration.jobs) == len(experiment.jobs) else []
    if not other or not all(job.has_outside_code for job in other):
        return (
            "this installation would train other runs: a profile, the default profile, a task or a family changed"
            " after the registration; install the version that registered it"
        )
    earlier = earlier_runs(other, store)
    files = ", ".join(dict.fromkeys(runs.file for runs in earlier if runs.file))
    labels = ", ".join(dict.fromkeys(job.label for job in other))
    return (
        f"{files or f'the code of {labels}'} changed after the registration; restore the registered code, or"
        " register again under another name"
    )


def _prepare(mapping: Mapping[str, Any], results: Path, where: str) -> Experiment:
    return prepare(expand_grid(from_mapping(GridFile, mapping, where), where), ExperimentOptions(results=results))


def _paper_with(names: Sequence[str], experiment: Experiment, where: str) -> str:
    """The name of the only paper whose claims can be registered for the grid of ``experiment``.

    With ``names``, it is the paper that has claims of all these names. If several papers have them, papers are
    preferred for which the grid can decide these claims. Without ``names``, it is the paper that has at least one claim
    that the grid can decide. Raises ``ConfigError`` if there is no such paper, or if several are left. The message
    begins with ``where``.
    """
    papers = claims_by_paper()
    if names:
        known_claims = {claim.name for claims in papers.values() for claim in claims}
        candidates = [paper for paper, claims in papers.items() if {claim.name for claim in claims}.issuperset(names)]
        candidates = [
            paper for paper in candidates if not _problems(papers[paper], experiment).keys() & set(names)
        ] or candidates
        if unknown := [name for name in names if name not in known_claims]:
            suggestion = did_you_mean(unknown[0], known_claims, CLAIMS_LISTED)
            raise ConfigError(
                f"{where}: claims: no claim {short_repr(unknown[0])}{suggestion}; for claims in a file of yours write"
                " claims_from: FILE.yaml"
            )
    else:
        candidates = [paper for paper, claims in papers.items() if len(_problems(claims, experiment)) < len(claims)]
    if len(candidates) > 1 or (names and not candidates):
        problem = "several papers have these claims" if candidates else "no paper has all of these claims"
        raise ConfigError(
            f"{where}: claims: {problem}; write claims_from: PAPER, one of {', '.join(candidates or papers)}"
        )
    if not candidates:
        raise ConfigError(f"{where}: {_NONE}")
    return candidates[0]


def _claims(names: Sequence[str], claims: Sequence[Claim], experiment: Experiment, where: str) -> list[Claim]:
    """The ``claims`` with the given ``names``. If ``names`` is empty, all claims that the grid can decide.

    The grid of ``experiment`` can decide a claim if it has the claim's labels and at least one of its columns. Raises
    ``ConfigError`` if the grid cannot decide a named claim, or no claim at all. The message begins with ``where``.
    """
    problems = _problems(claims, experiment)
    for name in names:
        if name in problems:
            raise ConfigError(f"{where}: claims: {name} {problems[name]}")
    chosen_claims = [claim for claim in claims if (claim.name in names if names else claim.name not in problems)]
    if not chosen_claims:
        raise ConfigError(f"{where}: {_NONE}")
    return chosen_claims


_NONE = "no claim has all its labels and a task here; madbench findings lists claims and labels"


def _problems(claims: Sequence[Claim], experiment: Experiment) -> dict[str, str]:
    """The reason why the grid of ``experiment`` cannot decide a claim, by the name of each such claim."""
    columns, rows = columns_of(experiment), {row.name for row in experiment.rows}
    problems = {}
    for claim in claims:
        needed_labels = claim.labels(range(len(claim.pairs)))
        lacking = [label for label in needed_labels if label not in experiment.labels]
        missing_labels = [label for label in needed_labels if label not in rows]
        if lacking:
            problems[claim.name] = f"needs the labels {', '.join(lacking)}; add them to labels"
        elif missing_labels:
            keys = ", ".join(experiment.grid.axes)
            problems[claim.name] = f"compares labels under one setting, and rows differ in {keys}; move it to set"
        elif not any(name in columns for name in claim.quantities):
            headings = " or ".join(map(heading, claim.quantities))
            problems[claim.name] = f"is about {headings}, which these tasks do not give; change tasks"
    return problems
