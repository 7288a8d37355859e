from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.executors import (
    AddressOption,
    CpusPerJobOption,
    ExecutorName,
    ExecutorOption,
    GpusPerJobOption,
    MemoryOption,
    PartitionOption,
    Placement,
    SbatchOption,
    SharedOption,
    WallTimeOption,
    place,
)
from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    CorpusOption,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    ProfileOption,
    ResultsOption,
    labels_and_overrides,
    parse_seeds,
    split_list,
)
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.experiment import Experiment
    from madbench.language_experiment import LanguageExperiment

LANGUAGE_MODEL = "language_model."
"""How an override of the language model's preset begins."""
LANGUAGE_MODELS = (LANGUAGE_MODEL, "language_model=")
"""How an override that does not concern the MAD tasks begins."""


def run(
    words: Annotated[
        list[str],
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " KEY=VALUE changes the profile."),
    ],
    profile: ProfileOption = "quick",
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", "-t", help="MAD tasks and language_model, comma-separated; all seven by default."),
    ] = None,
    corpus: CorpusOption = None,
    seeds: Annotated[str, typer.Option(help="Seeds such as 0,1,2 or 0-4; one decides init, data and order.")] = "0",
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: ResultsOption = RESULTS,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Jobs at a time; one a CPU core or one on a GPU by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train again what the store has already.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show jobs, parameters, FLOPs and a time estimate; train nothing.")
    ] = False,
    as_json: JsonOption = False,
    executor: ExecutorOption = ExecutorName.local,
    address: AddressOption = None,
    cpus_per_job: CpusPerJobOption = None,
    gpus_per_job: GpusPerJobOption = None,
    shared: SharedOption = False,
    partition: PartitionOption = None,
    wall_time: WallTimeOption = None,
    memory: MemoryOption = None,
    sbatch: SbatchOption = None,
) -> None:
    """Train labels on the MAD tasks and as language models, and print the tables.

    The same command again does only what is missing. Ctrl-C keeps what is done
    and where the rest was; the same command goes on from there. madbench ls
    profiles lists what KEY can be, madbench ls presets what it can be after
    language_model, the half that --tasks names like a task.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run S-p -t language_model language_model.training.steps=600
      madbench run @table1 --profile full --device cuda --dry-run
      madbench run @table1 --executor ray --address head:6379 --gpus-per-job 0.5
      madbench run @table1 --executor slurm --partition gpu --device cuda
    """
    from rich.console import Console

    from madbench.sweeps.profile import load_profile

    labels, overrides = labels_and_overrides(words)
    mad_tasks, preset = _halves(profile, split_list(tasks), overrides, corpus)
    if mad_tasks == [] and fidelity is not Fidelity.corrected:
        raise ConfigError(f"--fidelity {fidelity.value}: has no effect, only MAD tasks have a fidelity")
    placement = place(
        executor,
        device,
        slots,
        address=address,
        cpus_per_job=cpus_per_job,
        gpus_per_job=gpus_per_job,
        shared=shared,
        partition=partition,
        wall_time=wall_time,
        memory=memory,
        sbatch=sbatch,
    )
    if dry_run and placement.is_remote:
        raise ConfigError(f"--dry-run times a few steps on this machine; leave out --executor {executor.value}")
    common = {
        "seeds": parse_seeds(seeds),
        "counting": budget.value,
        "device": placement.device,
        "is_remote": placement.is_remote,
        "results": results,
    }
    console = Console(stderr=True)
    mad = language = None
    if mad_tasks != []:
        from madbench.experiment import prepare

        own = [override for override in overrides if not override.startswith(LANGUAGE_MODELS)]
        choices = {"profile": profile, "overrides": own, "tasks": mad_tasks, "fidelity": fidelity.value}
        mad = prepare(labels, **choices, **common)
    if preset:
        from madbench.language_experiment import prepare_language

        own = [word.removeprefix(LANGUAGE_MODEL) for word in overrides if word.startswith(LANGUAGE_MODEL)]
        with console.status("opening the corpus"):
            language = prepare_language(labels, preset=preset, overrides=own, corpus=corpus, **common)
    elif not tasks and load_profile(profile).language_model:
        console.print("no language model: its preset needs a corpus, --corpus FOLDER; see madbench lm prepare --help")
    if dry_run:
        _print_plans(mad, language, slots, as_json, console)
    else:
        _execute(mad, language, placement, force, as_json, console)


def _halves(
    profile: str, tasks: list[str] | None, overrides: list[str], corpus: Path | None
) -> tuple[list[str] | None, str]:
    """The MAD tasks, None for all of them, and the language model's preset, empty for none."""
    from madbench.language_jobs import TASK
    from madbench.sweeps.preset import load_preset
    from madbench.sweeps.profile import load_profile

    whole = [override for override in overrides if override.startswith("language_model=")]
    preset = load_profile(profile, whole).language_model
    is_asked = tasks is not None and TASK in tasks
    if is_asked and not preset:
        raise ConfigError(f"profile {profile} has no language model; name its preset, such as language_model=tiny")
    if tasks is not None and not is_asked:
        preset = ""
    if preset and not is_asked and corpus is None and not load_preset(preset).corpus:
        preset = ""
    only_language = tasks is not None and set(tasks) == {TASK}
    for override in overrides:
        if override.startswith(LANGUAGE_MODEL) and not preset:
            raise ConfigError(f"override {override!r} has no effect: no language model is trained")
        if only_language and not override.startswith(LANGUAGE_MODELS):
            raise ConfigError(f"override {override!r} has no effect on the language model; write language_model.KEY=VALUE")
    if corpus is not None and not preset:
        raise ConfigError(f"--corpus {corpus}: has no effect, no language model is trained")
    return tasks and [task for task in tasks if task != TASK], preset


def _execute(
    mad: Experiment | None,
    language: LanguageExperiment | None,
    placement: Placement,
    force: bool,
    as_json: bool,
    console: Console,
) -> None:
    from madbench.cli.execution import train_and_show
    from madbench.cli.lm.train import table_command as language_table_command
    from madbench.experiment import tabulate
    from madbench.language_experiment import tabulate_language

    output: dict[str, Any] = {}
    failed = {"mad": False, "language": False}
    how = {"console": console, "force": force, "as_json": as_json}
    how |= {"slots": placement.slots, "executor": placement.executor}
    if mad:
        output, failed["mad"] = train_and_show(mad, tabulate, _table_command(mad), **how)
    if language:
        command = language_table_command(language)
        output["language_model"], failed["language"] = train_and_show(language, tabulate_language, command, **how)
    if as_json:
        print(json.dumps(output, indent=2))
    if any(failed.values()):
        raise typer.Exit(1)


def _print_plans(
    mad: Experiment | None, language: LanguageExperiment | None, slots: int | None, as_json: bool, console: Console
) -> None:
    from madbench.cli.lm.plan import language_plan, print_language_plan
    from madbench.cli.plan import mad_plan, print_mad_plan

    output: dict[str, Any] = {}
    if mad:
        output = mad_plan(mad, slots, console)
        if not as_json:
            print_mad_plan(mad, output)
    if language:
        output["language_model"] = language_plan(language, slots, console)
        if not as_json:
            print_language_plan(language, output["language_model"])
    if as_json:
        print(json.dumps(output, indent=2))


def _table_command(experiment: Experiment) -> str:
    from madbench.tasks.registry import TASK_NAMES

    given = {
        "--profile": experiment.profile_name,
        "--fidelity": experiment.fidelity,
        "--budget": experiment.counting,
        "--results": str(experiment.results),
    }
    usual = {"--profile": "quick", "--fidelity": "corrected", "--budget": "strict", "--results": str(RESULTS)}
    options = [word for option in given.items() if option not in usual.items() for word in option]
    if len(experiment.tasks) < len(TASK_NAMES):
        options += ["--tasks", ",".join(experiment.tasks)]
    return shlex.join(["madbench", "table", *experiment.overrides, *options])


def add_to(app: typer.Typer) -> None:
    app.command()(run)
