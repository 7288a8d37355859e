"""``madbench register``: freeze claims before their runs exist."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.printing import count_text
from madbench.config import seed_list
from madbench.config.options import argument
from madbench.store.results_folder import command_on


def register(
    file: Annotated[Path, argument("FILE.yaml", "A grid, as for madbench sweep, with the key claims.")],
    claims: options.ClaimsOption = None,
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Freeze claims and a grid before the runs exist.

    Write a file with the ending .registered.json beside FILE. It has labels,
    tasks, seeds, thresholds, every value that a verdict needs, and a hash of all
    of these. For your own claims FILE has the key claims_from: my_claims.yaml, a
    file beside FILE. Then train the grid with madbench sweep, and read the
    verdicts with madbench findings --registered.

    [bold]A file to register[/bold]

      claims: [ lag ]
      labels: [R-12!, R-12o!, G-12!, G-12o!]
      seeds: 0-4

    [bold]Examples[/bold]

      madbench register lag.yaml
      madbench sweep lag.yaml
      madbench findings --registered lag.registered.json
    """
    from madbench.analysis import registration

    frozen, experiment, path = registration.register(file, results, claims or "")
    names, seeds = ", ".join(claim.name for claim in frozen.claims), seed_list(experiment.grid.seeds)
    print(f"{path}: {names}; {count_text(len(frozen.jobs), 'job')} of {len(experiment.labels)} labels, seeds {seeds}")
    print(f"hash {frozen.id}; keep the file where its date can be proved, such as in version control")
    if frozen.stored:
        print(f"{len(frozen.stored)} runs existed before the registration; results that use them are exploratory")
    commands = [command_on(results, "sweep", str(file)), command_on(results, "findings", "--registered", str(path))]
    print(f"next: {'; '.join(commands)}")
