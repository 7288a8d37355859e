"""How many seeds claims need, and claims stated before the runs: ``madbench power`` and ``madbench register``."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from pathlib import Path

from madbench.cli import options
from madbench.cli.options import PrintOptions, StoredOptions, argument, option, split_list
from madbench.cli.printing import counted, print_text_table, tracked
from madbench.config import seed_list
from madbench.errors import ConfigError, did_you_mean


def power(
    words: options.StoredWordsArgument = None,
    claim: option(
        list[str] | None, "Only these claims; all by default.", metavar="CLAIM,...", completes="CLAIM,..."
    ) = None,
    claims: options.ClaimsOption = "hypermlp",
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Estimate how many seeds each claim needs, from the spread of the stored seeds.

    The number of seeds with which a claim would be decided with a probability of
    80%, if further seeds are like the stored ones: means, spreads and shares of
    solved seeds are drawn from what the stored seeds allow, seeds are drawn from
    these, and tested as madbench findings does, at the level that Holm's method
    leaves the first of as many tests. It needs two stored seeds of every label.

    [bold]Examples[/bold]

      madbench power
      madbench power --claim lag,mixing
      madbench power -t selective_copying --json
      madbench power --claims my_claims.yaml
    """
    from madbench.analysis.claims import load_claims
    from madbench.analysis.power import power_table

    every = load_claims(claims)
    known = [one.name for one in every]
    names = split_list(claim, "--claim", "claim") or known
    for name in names:
        if name not in known:
            raise ConfigError(f"--claim {name}: no such claim{did_you_mean(name, known)}")
    selection = stored.selection(words)
    found = selection.select()
    asked = [one for one in every if one.name in names]
    table = power_table(found.scores, asked, found.sentences(), functools.partial(tracked, description="simulating"))
    print_text_table(table, printed)


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


def print_registered(words: list[str] | None, path: Path, stored: StoredOptions, printed: PrintOptions) -> None:
    """The findings that were registered, and every other claim as exploratory."""
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.registration import load_registration, registered_findings, sentences

    if words or dataclasses.replace(stored, results=options.RESULTS) != StoredOptions():
        raise ConfigError(
            "--registered: labels, tasks and protocol are those registered; give only --results beside it"
        )
    found, results = load_registration(path, stored.results)
    about = sentences(found, path, results)
    table = findings_table(registered_findings(found, results), results.sentences())
    print_text_table(dataclasses.replace(table, caption=" ".join([*about, table.caption])), printed)
