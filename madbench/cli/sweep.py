"""``madbench sweep``: train a grid of labels and settings and compare it with a baseline."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from madbench.cli.shared import options
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.parameters import given_options
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.training import train_grid
from madbench.cli.shared.words import labels_and_overrides, parse_margins
from madbench.config import parse_seeds, read_yaml, settings_of, short_repr
from madbench.config.options import argument, option
from madbench.errors import ConfigError, no_effect
from madbench.experiment.options import GridOptions
from madbench.grid import is_grid_file, load_grid, parse_axes

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results


def sweep(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        argument(
            "LABEL|KEY=VALUE|GRID.yaml",
            options.LABELS_HELP + " KEY=VALUE is for all rows. Or a file with a grid; options replace its keys.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        option(
            "A setting that differs between rows, or a label with such an argument: 'DeltaProduct(n={1,2,3})'; may be "
            "repeated.",
            metavar="KEY=V1,V2,...",
        ),
    ] = None,
    mode: Annotated[
        Literal["product", "one_at_a_time"],
        option(
            "product: every label with every combination. one_at_a_time: the baseline with one change per row.",
        ),
    ] = "product",
    baseline: Annotated[
        str | None,
        option(
            "The first row, with which the others are compared.",
            metavar="'LABEL KEY=VALUE'",
            show_default="the first label with the first values",
        ),
    ] = None,
    compare: Annotated[
        bool,
        option(
            "Compare the rows with the baseline as madbench compare does, with p-values and verdicts, in place of the "
            "table.",
            "--compare",
            rare="sweep",
        ),
    ] = False,
    within: options.WithinOption = None,
    *,
    grid: GridOptions,
    training: TrainingOptions,
    costs: CostsOptions,
    print_options: PrintOptions,
) -> None:
    """Train a grid of labels and settings; compare it with a baseline.

    The table has one row per label and setting, compared with the baseline. The
    same command again trains only missing runs, and a larger grid only new ones.
    Rows that a setting does not affect share their runs. A setting that affects
    no row is an error. A grid in a file has the keys labels, tasks, seeds,
    profile, fidelity, budget, set, vary, mode, baseline, rows, description,
    claims and claims_from (for madbench register):

      labels: \\[S-p, '~R-cg-q-12o']
      seeds: 0-2
      set: {training.epochs: 10}
      vary: {model.d_model: \\[64, 96], learning_rates: \\[\\[1.0e-3], \\[3.0e-3]]}
      mode: one_at_a_time
      baseline: {label: R-cg-q-12o, model.d_model: 64}

    Or a list of all rows (mode list):

      rows: \\[{label: S-p}, {label: R-cg-q-12o, model.d_model: 96}]

    [bold]Examples[/bold]

      madbench sweep '~R-cg-q-12o' --seeds 0-2
      madbench sweep R-12! R-12o! --vary model.mix_rank=4,8 -t in_context_recall
      madbench sweep S R-c --vary training.epochs=8,20 --mode one_at_a_time
      madbench sweep R-c --vary training.epochs=8,20 --seeds 0-4 --compare
      madbench sweep S-p --vary 'DeltaProduct(n={1,2,3})' --seeds 0-2
      madbench sweep @table1 --profile full --devices 0,1 --slots 4 --dry-run
      madbench sweep grid.yaml --retry --time-limit 30m
      madbench sweep @table1 --on ray:head:6379
      madbench sweep @table1 --on slurm:cluster.yaml --device cuda
    """
    labels = [word for word in vary or [] if re.search("[:({]", word.partition("=")[0])]  # a key has none of these
    keys = {
        "mode": mode,
        "baseline": baseline and _baseline_of(baseline),
        **vars(grid),
        "seeds": parse_seeds(training.seeds),
        "budget": training.budget,
        "vary": parse_axes([word for word in vary or [] if word not in labels]),
    }
    source, overrides = _source_of([*(words or []), *labels])
    given = given_options(context)
    changes = {key: value for key, value in keys.items() if key in given}
    changes |= {"set": overrides} if overrides else {}
    if isinstance(source, Path):
        _print_replaced_keys(source, changes)
    if within is not None and not compare:
        raise no_effect("--within", "without --compare")
    margins = None if within is None else parse_margins(within)

    def comparison(results: Results) -> Listing:
        from madbench.analysis.comparison import rows_table

        return rows_table(results, margins)

    train_grid(
        load_grid(source, changes),
        training,
        has_baseline=True,
        comparison=comparison if compare else None,
        print_options=print_options,
        costs=costs,
    )


def _source_of(words: list[str]) -> tuple[Path | list[str], dict[str, Any]]:
    """Split the words of ``madbench sweep`` into the file of a grid or labels, and settings that all rows share.

    Raises ``ConfigError`` for two files, and for labels beside a file.
    """
    files = [word for word in words if is_grid_file(word) and "=" not in word]
    labels, overrides = labels_and_overrides([word for word in words if word not in files])
    if len(files) > 1:
        raise ConfigError(f"{files[1]}: give only one grid; {files[0]} is a grid too")
    if files and labels:
        raise no_effect(short_repr(labels[0]), because=f"the labels are those of {files[0]}")
    return (Path(files[0]) if files else labels), settings_of(overrides)


def _baseline_of(text: str) -> dict[str, Any]:
    """Parse ``--baseline``: ``"S-p model.mix_rank=4"`` becomes ``{"label": "S-p", "model.mix_rank": 4}``.

    Raises ``ConfigError`` for other text.
    """
    try:
        labels, overrides = labels_and_overrides(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--baseline {short_repr(text)}: {error}") from None
    if len(labels) > 1 or not (labels or overrides):
        raise ConfigError(f"--baseline {short_repr(text)}: expected one label, settings KEY=VALUE, or both")
    return ({"label": labels[0]} if labels else {}) | settings_of(overrides)


def _print_replaced_keys(path: Path, changes: Mapping[str, Any]) -> None:
    """Print on stderr which keys of the grid file ``path`` get other values from the command line."""
    in_file = read_yaml(path)
    inner_keys = [(f"{name}: ", in_file.get(name), changes.get(name, {})) for name in ("set", "vary")]
    whole_keys = {key: value for key, value in changes.items() if key not in ("set", "vary")}
    for prefix, file_keys, new_keys in [("", in_file, whole_keys), *inner_keys]:
        for key, value in new_keys.items():
            if isinstance(file_keys, dict) and key in file_keys and file_keys[key] != value:
                old_value, new_value = json.dumps(file_keys[key], default=str), json.dumps(value)
                print(f"{path}: {prefix}{key} {new_value} instead of {old_value}", file=sys.stderr)
