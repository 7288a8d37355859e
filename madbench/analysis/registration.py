"""Claims, labels, tasks, seeds and thresholds stated before the runs exist, frozen by the hash of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from madbench.analysis import claims, findings, inference, samples, scores
from madbench.analysis.claims import CLAIMS, MARGIN_SHARE, Claim, orientation
from madbench.analysis.findings import Finding
from madbench.analysis.quantities import heading, mad_columns
from madbench.analysis.scores import Results
from madbench.config import from_mapping, read_yaml, seed_list
from madbench.errors import ConfigError, StoreError, did_you_mean
from madbench.experiment import Experiment, prepare
from madbench.files import write_atomically
from madbench.grid import GridFile, expand_grid
from madbench.jobs import content_id
from madbench.store.runs import Store
from madbench.suites import LANGUAGE, MAD
from madbench.tasks import settings_class

EXPLORATORY = "Exploratory, not registered"
SUFFIX = ".registered.json"


@dataclass(frozen=True)
class Registration:
    """What :func:`register` froze."""

    registered: str
    """When, in UTC."""
    grid: dict[str, Any]
    """The file that was registered."""
    claims: tuple[Claim, ...]
    jobs: tuple[str, ...]
    """Ids of the runs that are to decide the claims."""
    stored: tuple[str, ...]
    """Those of them that had a result already."""
    thresholds: dict[str, Any]
    analysis: str
    """Hash of the code that tests the claims."""
    id: str
    """Hash of all of this."""


def register(path: Path, results: Path) -> tuple[Registration, Experiment, Path]:
    """Freezes the grid in the YAML file ``path``, and writes the registration beside it.

    The file has the keys of a grid and ``claims``: names of claims of the paper, by default those of which the grid has
    the labels and the tasks.

    Raises ``ConfigError`` for a registration that exists, for a claim that its labels or tasks cannot decide, and what
    :func:`madbench.experiment.prepare` does.
    """
    target = path.with_name(path.stem + SUFFIX)
    if target.exists():
        raise ConfigError(f"{target}: registered already; choose another name for another registration")
    mapping = read_yaml(path)
    made = _prepared(mapping, results, str(path))
    frozen = _claims(from_mapping(GridFile, mapping, str(path)).claims, made, str(path))
    present = Store.open(results).records({job.id for job in made.jobs})
    content = {
        "registered": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        "grid": mapping,
        "claims": [asdict(claim) for claim in frozen],
        "jobs": [job.id for job in made.jobs],
        "stored": [name for name, record in present.items() if record.status != "failed"],
        "thresholds": {
            "level": inference.LEVEL,
            "margin_share": MARGIN_SHARE,
            "least_seeds": inference.LEAST_SEEDS,
            "solved_share": {task: settings_class(task).solved_share for task in _mad_tasks(made)},
        },
        "analysis": _analysis_hash(),
    }
    content = json.loads(json.dumps(content))
    content["id"] = content_id(content)
    write_atomically(target, (json.dumps(content, indent=2) + "\n").encode())
    return from_mapping(Registration, content, str(target)), made, target


def load_registration(path: Path, results: Path) -> tuple[Registration, Results]:
    """A registration and what is stored of it.

    Raises ``ConfigError`` where the file was changed, or where this installation would not train the registered runs.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not a registration: {error}; madbench register FILE makes one") from None
    found = from_mapping(Registration, content, str(path))
    if content_id({name: value for name, value in content.items() if name != "id"}) != found.id:
        raise ConfigError(f"{path}: changed after it was registered; its content does not have the hash {found.id}")
    made = _prepared(found.grid, results, str(path))
    if [job.id for job in made.jobs] != list(found.jobs):
        raise ConfigError(
            f"{path}: this installation would train other runs: a profile, a task or a family changed after the"
            " registration; install the version that registered it"
        )
    if not results.is_dir():
        raise StoreError(f"{results}: no such folder; madbench sweep trains what was registered")
    return found, Results(made, Store.open(results))


def registered_findings(found: Registration, results: Results) -> list[Finding]:
    """The findings that were registered, and after them, as a family of their own, every other claim: exploratory."""
    names = {claim.name for claim in found.claims}
    quantities = set(results.scores.column)
    confirmed = findings.findings(results.scores, quantities, claims=found.claims)
    others = [claim for claim in CLAIMS if claim.name not in names]
    explored = findings.findings(results.scores, quantities, claims=others)
    return confirmed + [
        replace(row, claim=replace(row.claim, group=EXPLORATORY)) for row in explored if not row.missing
    ]


def sentences(found: Registration, path: Path, results: Results) -> list[str]:
    """What a reader of the findings has to know of the registration."""
    text = [f"Registered {found.registered} UTC as {found.id} ({path.name})."]
    jobs = {job.id: job for job in results.experiment.jobs}
    written = {name: results.store.written(name) for name in results.store.records(set(jobs))}
    early = {name for name, when in written.items() if when < found.registered} | set(found.stored)
    if early:
        labels = ", ".join(dict.fromkeys(jobs[name].label for name in jobs if name in early))
        seeds = seed_list({jobs[name].seed for name in early})
        text.append(f"{len(early)} of {len(jobs)} runs were stored before the registration: {labels}; seeds {seeds}.")
    if found.analysis != _analysis_hash():
        text.append("The analysis changed after the registration; its verdicts are those of the present one.")
    if lacking := len(jobs) - len(written):
        text.append(f"{lacking} of {len(jobs)} registered runs are not stored yet.")
    return text


def _prepared(mapping: Mapping[str, Any], results: Path, where: str) -> Experiment:
    return prepare(expand_grid(from_mapping(GridFile, mapping, where), where), results=results)


def _claims(names: Sequence[str], made: Experiment, where: str) -> list[Claim]:
    """The claims by name; without names those of which all labels, and a quantity, are there."""
    given = {column.name for column in mad_columns(_mad_tasks(made))}
    has_loss = LANGUAGE in made.suites
    problems = {}
    for claim in CLAIMS:
        lacking = [label for label in claim.labels(range(len(claim.pairs))) if label not in made.labels]
        if lacking:
            problems[claim.name] = f"needs the labels {', '.join(lacking)}; add them to labels"
        elif not any(x in given or (has_loss and orientation(x) < 0) for x in claim.quantities):
            about = " or ".join(map(heading, claim.quantities))
            problems[claim.name] = f"is about {about}, which these tasks do not give; change tasks"
    known = [claim.name for claim in CLAIMS]
    for name in names:
        if name not in known:
            raise ConfigError(f"{where}: claims: no claim {name!r}{did_you_mean(name, known)}")
        if name in problems:
            raise ConfigError(f"{where}: claims: {name} {problems[name]}")
    found = [claim for claim in CLAIMS if (claim.name in names if names else claim.name not in problems)]
    if not found:
        raise ConfigError(
            f"{where}: no claim has all its labels and a task here; madbench findings lists claims and labels"
        )
    return found


def _mad_tasks(made: Experiment) -> list[str]:
    return [task for row in made.of(MAD).rows[:1] for task in row.protocol.tasks]


def _analysis_hash() -> str:
    modules: Sequence[Any] = (inference, samples, scores, claims, findings)
    return hashlib.sha256(b"".join(Path(module.__file__).read_bytes() for module in modules)).hexdigest()[:16]
