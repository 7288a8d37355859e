"""Add archives of results/measured to archived_jobs.json: python tests/store/list_archived_jobs.py papers/talk ..."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parents[2] / "results" / "measured"
LISTED = Path(__file__).with_name("archived_jobs.json")


def entry(archive: Path) -> dict[str, Any]:
    """The jobs of an archive: lists of configurations and mixers, and runs that name them by place."""
    configs: list[dict[str, Any]] = []
    mixers: list[list[Any]] = []
    seeds: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    ids = []
    with tarfile.open(archive) as file:
        for member in sorted(file.getmembers(), key=lambda member: member.name):
            if not member.name.endswith("/job.json"):
                continue
            fields = json.load(file.extractfile(member))
            ids.append(member.name.split("/")[-2])
            label, seed = fields.pop("label"), fields.pop("seed")
            mixer = [fields.pop("family"), fields.pop("mixer")]
            fields.pop("schema", None)
            for item, places in ((fields, configs), (mixer, mixers)):
                if item not in places:
                    places.append(item)
            seeds[configs.index(fields), mixers.index(mixer), label].append(seed)
    runs = [[*key, sorted(own)] for key, own in sorted(seeds.items())]
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]
    return {"ids": digest, "configs": configs, "mixers": mixers, "runs": runs}


def text_of(listed: dict[str, dict[str, Any]]) -> str:
    """The file as text, with one configuration, mixer or run per line."""

    def lines(items: list[Any]) -> str:
        return ",\n   ".join(json.dumps(item, separators=(",", ":")) for item in items)

    parts = [
        f' "{name}": {{"ids": "{own["ids"]}",\n  '
        + ",\n  ".join(f'"{key}": [\n   {lines(own[key])}]' for key in ("configs", "mixers", "runs"))
        + "}"
        for name, own in listed.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    listed = json.loads(LISTED.read_text(encoding="utf-8"))
    for name in sys.argv[1:]:
        listed[name] = entry(MEASURED / f"{name}.tar.xz")
    LISTED.write_text(text_of(listed), encoding="utf-8")
