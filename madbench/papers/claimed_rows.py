"""Items that are decided by claims about rows. A row is a label, or a label with changed settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from madbench.analysis.claims import ClaimsFile
from madbench.config import from_mapping, read_yaml
from madbench.errors import no_effect
from madbench.papers.claim_family import judge_claims
from madbench.papers.making import ItemResult, Measure, Request, grid_of, require_results, row_of
from madbench.papers.table_measure import beside_published
from madbench.rows import Grid
from madbench.tasks import task_names

if TYPE_CHECKING:
    from madbench.analysis.claims import Claim
    from madbench.analysis.scores import Results


class ClaimedRows(Measure):
    """A measure that trains all rows of an item's claims, and tests the claims together.

    The claims are in the file ``ID.yaml`` in the folder of the paper, where ID is the item's id.
    """

    def introduction(self, request: Request) -> Sequence[str]:
        return [
            *super().introduction(request),
            *(f"{claim.title}: {claim.sentence}" for claim in claims_of_item(request)),
        ]

    def plan(self, request: Request) -> Grid:
        if request.labels:
            raise no_effect(request.labels[0], f"on {request.item.id}, whose claims have its rows")
        rows = [row_of(text) for claim in claims_of_item(request) for text in claim.labels(range(len(claim.pairs)))]
        axes = dict.fromkeys(change.path for row in rows for change in row.changes)
        return grid_of(request, dict.fromkeys(rows), request.tasks or request.item.tasks, tuple(axes))

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        trained = require_results(results)
        table, (verdicts, remarks) = (
            beside_published(request, [trained]),
            judge_claims(trained, claims_of_item(request)),
        )
        return ItemResult([table], verdicts, {"cells": table.json_rows()}, (), remarks)


def claims_of_item(request: Request) -> list[Claim]:
    """The claims in the file of an item. The pairs of a claim are pairs of rows, given by name.

    The quantities of a claim are those that it names, otherwise those of the file, otherwise all trained tasks. A
    quantity that is a task is kept only if the task is trained. A claim without quantities is left out.
    """
    path, tasks = request.paper.file(f"{request.item.id}.yaml"), request.tasks or request.item.tasks
    of_tasks, file = [], from_mapping(ClaimsFile, read_yaml(path), str(path))
    for claim in file.claims:
        pairs = tuple((row_of(one).name, row_of(other).name) for one, other in claim.pairs)
        named = claim.quantities or file.quantities or tasks
        quantities = tuple(name for name in named if name in tasks or name not in task_names())
        if quantities:
            of_tasks.append(replace(claim, quantities=quantities, pairs=pairs))
    return of_tasks
