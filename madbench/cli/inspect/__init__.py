"""``madbench inspect``: measure the mixers of a trained model, in numbers and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from madbench.cli.inspect.tables import comparison_lines, model_lines
from madbench.cli.plot import FigurePlace, LayoutOptions
from madbench.cli.shared import options
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import count_text, print_json, print_lines
from madbench.cli.shared.trained_models import TrainedModel, TrustOption
from madbench.config import short_repr
from madbench.config.options import argument, option, split_list
from madbench.errors import ConfigError, no_effect
from madbench.jobs import Job
from madbench.suites import suite_of
from madbench.suites.changes import setting_change
from madbench.text.options import CorpusOptions
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.figures.panels import Layout
    from madbench.analysis.inspection import Inspection


@dataclass(frozen=True)
class InspectedCorpus(CorpusOptions):
    """The corpus from which the inputs of a language model are drawn."""

    corpus: Annotated[Path | None, option("Folder of the corpus of a language model, if it was moved.")] = None


def inspect(
    run: Annotated[
        str,
        argument(
            "RUN",
            "A label with one run that has weights, the first digits of a run's id (madbench ls runs), or a file of "
            "weights: weights.safetensors or checkpoint.pt.",
        ),
    ],
    other: Annotated[str | None, argument("RUN2", "A second run to compare with.")] = None,
    tasks: Annotated[
        list[str] | None,
        option(
            "The task of the run or its suite, if a label has runs of several tasks.",
            "--tasks",
            "--task",
            "-t",
            show_default="any",
            completes="TASK,...",
        ),
    ] = None,
    examples: Annotated[
        int | None, option("Number of inputs.", min=1, show_default="up to 32, fewer if they are long")
    ] = None,
    *,
    data: InspectedCorpus,
    output: Annotated[
        Path | None, output_option("Folder of the figures.", show_default="RESULTS/plots/inspect-ID")
    ] = None,
    trust: TrustOption = None,
    no_figures: Annotated[bool, option("Print the numbers only.", "--no-figures")] = False,
    shape: LayoutOptions,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    format: FormatOption = "terminal",
) -> None:
    """Measure what happens inside the mixers of a trained model.

    It shows active sets, weights by lag, gates and lag kernels; two runs stand
    side by side. Language models keep their weights; other runs keep them with
    the option --keep-weights of madbench run. The inputs are the first examples
    of the run's test set or validation text, so a command always gives the same
    numbers.

    The tables have one row per layer and head, with means over rows and examples:

    Active     share of slots with a score above zero (R, G). It is one half for
               scores that are symmetric about zero (Proposition I.3). Overlap
               with the row before, by lag and by slot, and the overlap of
               independent sets of the same sizes. Share of slots whose score
               changes its sign if the input changes by 1%.
    Weights    effective number of keys of a row; coefficients near zero (~0, at
               most 0.001), near one (~1, from 0.9) and negative, in percent;
               weights by lag; overlap with the row before.
    Kernels    learned R(1), R(2), which are I + Diag(p) + K with K of low rank:
               the size of p, that of K relative to I + Diag(p), and the shares of
               K that are a shift, an average over all tokens or over a window of
               the newest, or that depend only on the offset (Appendix I). All in
               percent. 95% of random kernels have at most the share in brackets;
               * marks a larger share. The share of a shift is divided by the
               largest that is possible with the rank of K.
    Gates      mean, spread, and shares that are nearly closed (0.1) or open
               (0.9).
    Matrices   learned effects between tokens, if the mixer has matrices of them:
               their effective rank, and the shares that are symmetric or on the
               diagonal.

    For two runs a cell has one number per layer, the mean over heads.

    Figures: lags, maps, kernels, gates and matrices, as PNG and PDF.

    [bold]Examples[/bold]

      madbench run R-cg-q-12o S-p -t selective_copying --keep-weights
      madbench inspect R-cg-q-12o
      madbench inspect R-cg-q-12o S-p -t selective_copying --output slides
      madbench inspect 3f9a --examples 64 -f json
    """
    if no_figures and (output is not None or shape != LayoutOptions()):
        raise no_effect("--output, --width, --no-title or --no-caption", "with --no-figures")
    place = FigurePlace.folder_from_option(output, results)
    requested_tasks = split_list(tasks)
    device = resolve_device(device)
    runs: list[InspectedRun] = []
    for name in [run] if other is None else [run, other]:
        trained = TrainedModel(name, results, is_of_text=False, tasks=requested_tasks, trust=trust)
        if runs and trained.job.id == runs[0].job.id:
            raise ConfigError(f"{short_repr(name)} is the same run as {short_repr(run)}; name two, or one alone")
        _check_can_be_inspected(name, trained.job, data)
        runs.append(_inspect(trained, data, examples, device))
    names = _names([each.job for each in runs])
    files = []
    if not no_figures:
        folder = place.path if output else place.path / f"inspect-{'-'.join(each.job.id[:8] for each in runs)}"
        files = _draw({name: each.inspection for name, each in zip(names, runs)}, folder, shape.layout)
    if format == "json":
        print_json({"runs": [each.content for each in runs], "figures": list(map(str, files))})
        return
    _print_numbers(names, runs)
    print("\ncolumns: madbench inspect --help")
    if files:
        print(f"figures: {files[0].parent}/ {', '.join(path.stem for path in files if path.suffix == '.png')}")


@dataclass(frozen=True)
class InspectedRun:
    """A trained run, and measurements of what its model does on inputs of its task."""

    job: Job
    input_shape: tuple[int, ...]
    """The number of inputs and the number of tokens of each."""
    inspection: Inspection

    @property
    def content(self) -> dict[str, Any]:
        """The JSON content: the run, the number and length of the inputs, and the tables."""
        job = self.job
        names = {"label": job.label, "id": job.id, "task": job.task, "seed": job.seed}
        return names | {"inputs": list(self.input_shape)} | self.inspection.tables


def _check_can_be_inspected(name: str, job: Job, data: InspectedCorpus) -> None:
    """Raise ``ConfigError`` if the job's suite cannot be inspected, or if a corpus is given but not read.

    ``name`` is the run as the user typed it, for the message.
    """
    suite = suite_of(job)
    if suite.not_inspected:
        raise ConfigError(f"{short_repr(name)}, task {job.task}, {suite.not_inspected}")
    for setting, value in vars(data).items():
        if value is not None and suite.corpus_of(job) is None:
            raise no_effect(f"--{setting} {value}", f"on task {job.task}")


def _inspect(trained: TrainedModel, data: InspectedCorpus, examples: int | None, device: str) -> InspectedRun:
    """Measure a trained model on the first ``examples`` inputs of its task.

    If ``examples`` is None, the number depends on the length of the inputs.
    """
    from madbench.analysis.inspection import examples_for
    from madbench.analysis.inspection import inspect as measure

    job, suite = trained.job, suite_of(trained.job)
    corpora = {} if suite.corpus_of(job) is None else {job.setting["corpus"]: trained.corpus(data)}
    draw = suite.Trial.examples
    inputs = draw(job, examples or examples_for(draw(job, 1, corpora).shape[1]), corpora)
    with Console(stderr=True).status(f"{job.label}: {len(inputs)} inputs of {inputs.shape[1]} tokens"):
        return InspectedRun(job, tuple(inputs.shape), measure(trained.model.to(device), inputs.to(device)))


def _draw(inspections: Mapping[str, Inspection], folder: Path, layout: Layout) -> list[Path]:
    """Draw the figures of the runs and return the paths of the files.

    ``inspections`` maps the name of each run to its measurements.
    """
    from madbench.analysis.figures.files import save_figure
    from madbench.analysis.figures.inspection import inspection_figures

    with Console(stderr=True).status("drawing"):
        return [
            path
            for name, figure in inspection_figures(inspections, layout)
            for path in save_figure(figure, folder / name)
        ]


def _print_numbers(names: Sequence[str], runs: Sequence[InspectedRun]) -> None:
    """Print the tables of a single run, or one table that shows two runs side by side."""
    console = Console()
    for name, each in zip(names, runs):
        job, (count, length) = each.job, each.input_shape
        what = f"{job.task} {setting_change(job)}, seed {job.seed}, run {job.id}"
        console.print(f"{name}: {what}; {count_text(count, 'input')} of {length} tokens", markup=False, highlight=False)
    inspections = [each.inspection for each in runs]
    for lines in model_lines(*inspections) if len(runs) == 1 else [comparison_lines(names, inspections)]:
        console.print()
        print_lines(console, lines)


def _names(jobs: Sequence[Job]) -> list[str]:
    """Names that distinguish the jobs: their labels or, if these are equal, with the task, the seed or the id added."""
    for extra in ("", "task", "seed", "id"):
        names = [f"{job.label} {extra} {getattr(job, extra)}" if extra else job.label for job in jobs]
        if len(set(names)) == len(names):
            break
    return names
