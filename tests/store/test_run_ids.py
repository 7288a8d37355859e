"""The ids of archived runs. A stored run is found only as long as its configuration has the same id."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from madbench.jobs import Job, content_id
from madbench.suites import job_from_dict

MEASURED = Path(__file__).parents[2] / "results" / "measured"
ARCHIVED = json.loads(Path(__file__).with_name("archived_jobs.json").read_text(encoding="utf-8"))
"""The jobs of the archives in results/measured, and a digest of the ids that they had when they were stored.

A run is ``[configuration, mixer, label, seeds]``. The first two are positions in the lists before.
"""


def jobs_of(archive: str) -> list[Job]:
    held = ARCHIVED[archive]
    return [
        job_from_dict({**held["configs"][config], "label": label, "seed": seed, "family": family, "mixer": mixer})
        for config, mixer_place, label, seeds in held["runs"]
        for family, mixer in [held["mixers"][mixer_place]]
        for seed in seeds
    ]


def digest_of(ids: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("archive", ARCHIVED)
def test_a_configuration_has_the_id_of_its_archived_run(archive):
    assert digest_of([job.id for job in jobs_of(archive)]) == ARCHIVED[archive]["ids"]


@pytest.mark.parametrize("archive", ARCHIVED)
def test_a_configuration_is_written_as_in_its_archived_record(archive):
    """Suites share a class for training settings, but each record keeps the names and the order of its suite."""
    held = ARCHIVED[archive]
    for config in {json.dumps(config["training"]): config for config in held["configs"]}.values():
        job = job_from_dict({**config, "label": "S", "seed": 0, "family": "srg 1", "mixer": {}})
        training, written = config["training"], job.to_dict()["training"]
        later = {"mad": {"beta2"}, "language": {"lr_decay_steps"}}.get(job.suite, set())  # than some archives
        assert [name for name in written if name in training or name not in later] == list(training)
        assert training.items() <= written.items()


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVED)
def test_the_archives_contain_the_runs_listed_here(archive):
    """The folder of a run is named after its id, and its file has the configuration of this id."""
    stored = {}
    with tarfile.open(MEASURED / f"{archive}.tar.xz") as file:
        for member in file:
            if member.name.endswith("/job.json"):
                fields = json.load(file.extractfile(member))
                stored[member.name.split("/")[-2]] = {key: fields[key] for key in fields if key != "schema"}
    assert {name: job_from_dict(fields).id for name, fields in stored.items()} == {name: name for name in stored}
    assert digest_of(list(stored)) == ARCHIVED[archive]["ids"]


def test_every_archive_is_listed():
    archives = (path.relative_to(MEASURED).as_posix() for path in MEASURED.rglob("*.tar.xz"))
    assert {name.removesuffix(".tar.xz") for name in archives} == ARCHIVED.keys()


def test_a_registration_has_the_ids_of_the_runs_that_were_made_for_it():
    content = json.loads((MEASURED / "evening.registered.json").read_text(encoding="utf-8"))
    assert content_id({name: value for name, value in content.items() if name != "id"}) == content["id"]
    assert content["id"] == "f4b2507b4d96fece"
    assert set(content["jobs"]) == {job.id for job in jobs_of("evening")}
