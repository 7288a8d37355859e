"""``madbench paper``: reproduce the tables, figures, theorems and claims of papers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from madbench.cli.paper.listings import print_items, print_papers
from madbench.cli.paper.options import FLAGS_OF_JOBS, PaperOptions
from madbench.cli.paper.printing import print_jobs, print_made
from madbench.cli.paper.shipped import results_or_shipped, show_shipped
from madbench.cli.plot import FigurePlace, LayoutOptions
from madbench.cli.shared import options
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.plan import ask_before_long
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import (
    PLAIN,
)
from madbench.cli.shared.progress import train_on_screen
from madbench.cli.shared.training import train_grid
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument
from madbench.errors import ConfigError, StoreError, no_effect
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.papers import load_paper
from madbench.papers.making import (
    FAILS,
    REPRODUCED,
    ItemResult,
    Measure,
    Request,
    check_profile,
    chosen_settings,
    measure_of,
    store_verdicts,
)
from madbench.papers.operators import failing_operators, fails_here, operators_of
from madbench.papers.shipped import archive_names
from madbench.plugins.paper_folders import built_in
from madbench.rows import Grid
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites.addressing import qualified_tasks

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

LAYOUT_FLAGS = "--width, --no-title or --no-caption"


def paper(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        argument(
            "[PAPER [ITEM [KEY=VALUE]]]",
            "A paper, one of its items, and changes of its profile. Without words: a list of the papers.",
        ),
    ] = None,
    *,
    choices: PaperOptions,
    shape: LayoutOptions,
    print_options: PrintOptions,
) -> None:
    """Reproduce a paper's tables, figures, theorems and claims.

    Without an item it lists the items of the paper: the command of each, its
    result on this machine, the number of stored jobs, and, if madbench cannot
    make it, the reason. If an item was not made on this machine, it shows the
    shipped verdict and the archive of its runs.

    The stored runs decide an item. If some of them are missing, the shipped runs
    in a clone of the repository decide it, and nothing is trained. With --yes or
    --force, and for runs that are not shipped, such as other seeds, it trains the
    missing runs. The same command again trains nothing.

    First the operators of the item are compared with float64 loops over their
    definitions. If one differs, the item "fails here": nothing is trained, and
    there is no verdict on the paper. If an identity fails, it is also computed
    with the loops: it is "contradicted" if it fails with them, too, and otherwise
    it "fails here". The exit code is 1 in all these cases.

    [bold]Examples[/bold]

      madbench paper                                  the papers
      madbench paper hypermlp                         every item of a paper
      madbench paper hypermlp table1 --dry-run        what it takes here
      madbench paper coefficients principle3          trained, measured, judged
      madbench paper hypermlp table1 --seeds 0-2 training.epochs=20
    """
    names, overrides = labels_and_overrides(words or [])
    flag_values = {**choices.flags, LAYOUT_FLAGS: shape != LayoutOptions()}
    flag_values |= dict.fromkeys(map(str, overrides), True)
    flags = [flag for flag, value in flag_values.items() if value]
    if len(names) < 2 and flags:
        raise no_effect(flags[0], "without an item")
    if not names:
        print_papers(choices.results, print_options)
        return
    if len(names) == 1:
        print_items(load_paper(names[0]), choices.results, print_options)
        return
    if (choices.output or shape != LayoutOptions()) and (choices.dry_run or not choices.figures):
        given_option = f"--output {choices.output}" if choices.output else LAYOUT_FLAGS
        raise no_effect(given_option, f"with {'--dry-run' if choices.dry_run else '--no-figures'}")
    FigurePlace.folder_from_option(choices.output, choices.results)  # raises for a file, before the item is made
    name, item_id, *labels = names
    chosen_paper = load_paper(name)
    item = chosen_paper.item(item_id)
    if not item.is_made_here:
        raise ConfigError(f"{name} {item_id}: {item.needs}")
    if item.command:
        for flag in (flag for flag in [*flags, *labels] if flag not in FLAGS_OF_JOBS):
            raise no_effect(flag, f"on {item.id}, which madbench {item.command} makes")
        request = Request(chosen_paper, item, results=choices.results.absolute())
        _run_command(context, request, choices, print_options)
        return
    check_profile(item, choices.profile)
    tasks = qualified_tasks(choices.tasks or ())
    request = Request(
        chosen_paper,
        item,
        choices.profile,
        choices.seeds,
        tuple(labels),
        tuple(tasks),
        overrides,
        choices.device,
        choices.results,
        choices.budget,
    )
    _Making(request, choices, shape, print_options).run()


def _run_command(context: typer.Context, request: Request, choices: PaperOptions, print_options: PrintOptions) -> None:
    """Make an item by running its ``madbench`` command, such as ``verify LABEL``.

    The results folder and the number of threads are passed on if the verb has options for them. Raises ``ConfigError``
    if the user gave an option of printing that the verb does not have.
    """
    group: Any = context.find_root().command
    verb = group.get_command(context, request.item.command.split()[0])
    known_options = {option.name for option in verb.params}
    words: list[str] = []
    if "threads" in known_options and choices.threads:
        words += ["--threads", str(choices.threads)]
    for name, given_words in print_options.words.items():
        if name not in known_options:
            raise no_effect(given_words[0], f"on {request.item.id}, which madbench {request.item.command} makes")
        words += given_words

    def words_on(folder: Path) -> list[str]:
        has_place = "results" in known_options and folder != options.RESULTS
        return [*words, "--results", str(folder)] if has_place else words

    with results_or_shipped(request.item, choices.results) as runs:
        call_verb(request, group.main, words_on(runs.folder), words_on(runs.shown_folder), runs.archives)


class _Making:
    """The reproduction of one item of a paper on this machine: its plan, its training and its result."""

    def __init__(self, request: Request, choices: PaperOptions, shape: LayoutOptions, print_options: PrintOptions):
        self.request, self.choices, self.shape, self.print_options = request, choices, shape, print_options
        self.measure = measure_of(request.item)
        self.planned_work = self.measure.plan(request)
        self.keeps_weights = not choices.dry_run and self.measure.keeps_weights(request)  # which may import torch
        self.training = choices.training(self.keeps_weights)

    def run(self) -> None:
        """Decide the item and print the result. With ``--dry-run`` only print the plan.

        The item is decided by its own runs if these are stored, and otherwise by the shipped runs if there are any. If
        neither is possible, or if the user asks for training, for example with ``--yes``, the missing runs are trained
        first.
        """
        from madbench.training.processes import is_first

        self.refuse_useless()
        choices = self.choices
        if self.print_options.format == "terminal" and not choices.dry_run and is_first():
            print(*self.measure.introduction(self.request), sep="\n")
            if (reason := self.request.item.fewer_seeds) and not self.request.seeds:
                print(f"Fewer than five seeds: {reason}.")
        asks_to_train = choices.dry_run or choices.yes or choices.force or choices.corpus is not None or not is_first()
        if self.request.item.runs and not asks_to_train:
            if show_shipped(self.request, self.measure, self.verify, self.finish, self.print_options):
                return
        if isinstance(self.planned_work, Grid):
            self.ask_before_training(self.planned_work)
        if not choices.dry_run:
            self.verify()
        trained = self.train()
        if not choices.dry_run and is_first():
            self.finish(self.request, trained)

    def refuse_useless(self) -> None:
        """Raise ``ConfigError`` if the user gave an option that has no effect on this item."""
        choices, item = self.choices, self.request.item
        if choices.budget and not isinstance(self.planned_work, Grid):
            raise no_effect(f"--budget {choices.budget}", f"on {item.id}, which has the ranks of its own models")
        if choices.corpus is not None and not isinstance(self.planned_work, Grid):
            raise no_effect(f"--corpus {choices.corpus}", f"on {item.id}, which trains no language model")
        if choices.dry_run and self.planned_work is None:
            raise no_effect("--dry-run", f"on {item.id}", "it trains nothing")

    def ask_before_training(self, grid: Grid) -> None:
        """Check that ``grid`` can be trained, and ask the user before a long training. No effect with ``--dry-run``.

        The check comes before the operators are verified, because that takes longer. Raises ``ConfigError`` for a grid
        that cannot be planned, and ``StoreError`` for stored runs that the item cannot measure.
        """
        choices = self.choices
        if choices.dry_run:
            return
        needs_weights = self.keeps_weights and not choices.force
        experiment = prepare(grid, ExperimentOptions(choices.device, choices.results, self.training.data))
        if needs_weights and (note := _note_on_weights(self.measure, self.request, experiment)):
            problem = f"{self.request.item.id} measures trained models: {note}"
            raise StoreError(f"{problem}; or name another folder with --results")
        if not choices.yes:
            ask_before_long(experiment, self.training.execution, self.training.policy)

    def verify(self) -> None:
        """Check the operators of the item. If one differs from its definition, print this and exit with code 1."""
        from madbench.training.processes import is_first

        with Console(stderr=True).status("verifying the operators"):
            failing = failing_operators(operators_of(self.request, self.measure, self.planned_work))
        if not failing:
            return
        decision = fails_here(failing)
        if is_first():
            store_verdicts(self.request, decision)
            print_made(self.request, decision, [], self.print_options)
        raise typer.Exit(1)

    def train(self) -> Results | None:
        """Train the missing runs of the item and return the results of all.

        With ``--dry-run`` print the plan and return None. None also for an item without runs.
        """
        if self.planned_work is None:
            return None
        if not isinstance(self.planned_work, Grid):
            return _train(self.planned_work, self.training, self.print_options)
        return train_grid(self.planned_work, self.training, has_tables=False, print_options=self.print_options)

    def finish(self, final_request: Request, trained: Results | None) -> None:
        """Decide the item by the results ``trained``. Draw its figures, store the verdicts, and print the result.

        ``final_request`` is the request of the user, or the request for the shipped runs if these decide the item.
        Exits with the exit code of the decision if it is not 0.
        """
        is_own = final_request is self.request
        with Console(stderr=True).status("measuring"):
            decision = self.measure.decide(final_request, trained)
            files = self.draw(decision, needs_all=is_own) if self.choices.figures else []
        note = chosen_settings(trained) if decision.verdicts else ""
        archives = () if is_own else archive_names(final_request.item)
        store_verdicts(replace(final_request, results=self.choices.results), decision, archives, note)
        print_made(final_request, decision, files, self.print_options, note)
        if decision.exit_code:
            raise typer.Exit(decision.exit_code)

    def draw(self, decision: ItemResult, needs_all: bool) -> list[Path]:
        """Draw the figures of ``decision``, the result of the item, and return the paths of the files.

        ``needs_all`` is False to warn, instead of raising ``StoreError``, if a figure needs weights that are missing.
        """
        place, files = FigurePlace.folder_from_option(self.choices.output, self.choices.results), list[Path]()
        try:
            for figure in decision.figures:
                files += place.write(figure.draw(layout=self.shape.layout), figure.stem, figure.frame)
        except StoreError as error:
            if needs_all:
                raise
            options.warn(f"figures are left out: {error}")  # weights are not shipped
        return files


def _note_on_weights(measure: Measure, request: Request, experiment: Experiment) -> str:
    """Advice about stored runs that the item cannot measure, such as runs without weights.

    Empty if there are no such runs.
    """
    quantity = measure.quantity(request)
    if quantity is None or not (experiment.results / "runs").is_dir():
        return experiment.note_on_weights()
    return quantity.note_on_runs(Store(experiment.results), [job.id for job in experiment.jobs])


def check_no_paper(word: str) -> None:
    """Raise ``ConfigError`` if ``word``, the first word of a command, is the name of a paper and not a verb."""
    if word in built_in():
        raise ConfigError(f"{word} is a paper: madbench paper {word}")


def _train(experiment: Experiment, training: TrainingOptions, print_options: PrintOptions) -> Results | None:
    """Train the jobs of an experiment and return its results. With ``--dry-run``, print its plan and return None.

    If jobs failed, they are printed, and the program exits with code 1.
    """
    from madbench.analysis.scores import Results

    console = Console(stderr=True)
    if note := experiment.note_on_damage():
        console.print(note, **PLAIN)
    if training.dry_run:
        print_jobs(experiment, training.policy, print_options)
        return None
    names = {job.id: row.row.name_suffix for row in experiment.rows for job in row.jobs}
    _, failed = train_on_screen(experiment, training.execution, training.policy, console, names)
    for job_id, reason in failed.items():
        console.print(f"failed: {names[job_id]} ({job_id}): {reason}", **PLAIN)
    if failed:
        raise typer.Exit(1)
    return Results.from_rows(experiment, Snapshot.open(experiment.results))


def call_verb(
    request: Request,
    run_command: Callable[..., int | None],
    words: Sequence[str] = (),
    shown_words: Sequence[str] | None = None,
    archives: Sequence[str] = (),
) -> None:
    """Make an item by running its ``madbench`` command through ``run_command``, and store that it was made here.

    ``words`` are added to the command. The command is printed with ``shown_words`` instead if these are given.
    ``archives`` are the names of the shipped archives that the command reads. A theorem also gets a verdict: it is
    reproduced if the command ends with exit code 0, and otherwise it fails here. Exits with the code of the command if
    that is not 0.
    """
    command = shlex.split(request.item.command)
    shown_command = shlex.join([*command, *(words if shown_words is None else shown_words)])
    Console(stderr=True).print(f"madbench {shown_command}", **PLAIN)
    code = run_command([*command, *words], prog_name="madbench", standalone_mode=False) or 0
    verdicts = {shown_command: FAILS if code else REPRODUCED} if request.item.kind == "theorem" else {}
    if verdicts or not code:
        store_verdicts(request, ItemResult((), verdicts, {}), archives)
    if code:
        raise typer.Exit(code)
