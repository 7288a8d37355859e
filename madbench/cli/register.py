"""``madbench register``: claims stated before the runs exist."""

from __future__ import annotations

import shlex
from pathlib import Path

from madbench.cli import options
from madbench.cli.parameters import argument
from madbench.cli.printing import counted
from madbench.config import seed_list


def register(
    file: argument(Path, "FILE", "A grid, as for madbench sweep, with the key claims: names of claims to decide."),
    claims: options.ClaimsOption = "hypermlp",
    *,
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Freeze claims, labels, tasks, seeds and thresholds before the runs exist.

    Writes FILE's name with .registered.json beside FILE, with every value that
    enters a verdict and a hash of all of it. Then train the grid, and read the
    verdicts with madbench findings --registered. They are provisional until every
    run has a result. Runs that were stored before, and values that changed since,
    are named there.

    [bold]A file[/bold]

      claims: [ lag ]
      labels: [R-12!, R-12o!, G-12!, G-12o!]
      seeds: 0-4

    [bold]Examples[/bold]

      madbench register lag.yaml
      madbench register gla.yaml --claims my_claims.yaml
      madbench sweep lag.yaml
      madbench findings --registered lag.registered.json
    """
    from madbench.analysis.registration import register as freeze

    found, experiment, path = freeze(file, results, claims)
    frozen, seeds = ", ".join(claim.name for claim in found.claims), seed_list(experiment.grid.seeds)
    print(f"{path}: {frozen}; {counted(len(found.jobs), 'job')} of {len(experiment.labels)} labels, seeds {seeds}")
    print(f"hash {found.id}; keep the file where its date can be shown, such as in version control")
    if found.stored:
        print(
            f"{len(found.stored)} of these jobs are stored already: their verdicts are not confirmed by a registration"
        )
    print(f"next: madbench sweep {shlex.quote(str(file))}; madbench findings --registered {shlex.quote(str(path))}")
