from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    CorpusOption,
    Counting,
    CountingOption,
    JsonOption,
    ResultsOption,
    TokenizerOption,
    TrackOption,
    labels_and_overrides,
    parse_trackers,
)
from madbench.config import parse_seeds

if TYPE_CHECKING:
    from madbench.language_experiment import LanguageExperiment


def train(
    words: Annotated[
        list[str],
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " KEY=VALUE changes the preset."),
    ],
    preset: Annotated[
        str, typer.Option("--preset", "-p", help="tiny, mini, gpt2, or a YAML file like those in tasks/presets.")
    ] = "tiny",
    corpus: CorpusOption = None,
    tokenizer: TokenizerOption = None,
    seeds: Annotated[str, typer.Option(help="Seeds such as 0,1,2 or 0-4; one decides init and batches.")] = "0",
    budget: CountingOption = Counting.strict,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: ResultsOption = RESULTS,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, which share the cores; one by default.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Windows in memory at a time; gradients of the rest are accumulated.")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model first (needs a C++ compiler).")] = False,
    track: TrackOption = None,
    force: Annotated[bool, typer.Option("--force", help="Train again what the store has already.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show parameters, FLOPs, memory and a time estimate; train nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train labels as language models and print the table. The same command again does only what is missing.

    The word train may be left out. On several devices: torchrun
    --nproc-per-node 8 -m madbench lm LABEL; tokens per step stay what the
    preset says. Ctrl-C keeps a checkpoint; the same command goes on from it.

    [bold]Examples[/bold]

      madbench lm G-cg-q-12o
      madbench lm S-p R-cg-q-12o --seeds 0,1,2 training.steps=600
      madbench lm S --corpus openwebtext model.n_head=12 model.positions=learned
      madbench lm @table1 --preset gpt2 --corpus openwebtext --dry-run
    """
    from rich.console import Console

    from madbench.cli.execution import train_and_show
    from madbench.cli.lm.plan import language_plan, print_language_plan
    from madbench.language_experiment import prepare_language, tabulate_language
    from madbench.training.distributed import is_first

    labels, overrides = labels_and_overrides(words)
    trackers = parse_trackers(track)
    console = Console(stderr=True, quiet=not is_first())
    with console.status("opening the corpus"):
        experiment = prepare_language(
            labels,
            preset=preset,
            overrides=overrides,
            corpus=corpus,
            tokenizer=tokenizer,
            seeds=parse_seeds(seeds),
            counting=budget.value,
            device=device,
            results=results,
        )
    if dry_run:
        plan = language_plan(experiment, slots, console, micro_batch)
        if as_json:
            print(json.dumps(plan, indent=2))
        else:
            print_language_plan(experiment, plan)
        return
    output, any_failed = train_and_show(
        experiment,
        tabulate_language,
        table_command(experiment),
        console,
        force,
        as_json,
        trackers,
        slots=slots,
        micro_batch=micro_batch,
        compile=compile,
    )
    if as_json and is_first():
        print(json.dumps(output, indent=2))
    if any_failed:
        raise typer.Exit(1)


def table_command(experiment: LanguageExperiment) -> str:
    """The command that shows the experiment's table again, with everything else the store may hold left out."""
    options = ["--corpus", experiment.corpus.digest, "--preset", experiment.preset_name]
    options += ["--budget", experiment.counting]
    if experiment.results != RESULTS:
        options += ["--results", str(experiment.results)]
    return shlex.join(["madbench", "lm", "table", *experiment.labels, *experiment.overrides, *options])


def add_to(app: typer.Typer) -> None:
    app.command()(train)
