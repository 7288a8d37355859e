"""What a reader must know to trust the numbers of a suite: data, sizes, evaluation, devices, what is missing, noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from madbench.analysis.inference import LEAST_FOR_LEVEL, LEAST_SEEDS, binomial_interval
from madbench.analysis.loss_curves import timing_differences
from madbench.analysis.protocols import language_protocol
from madbench.analysis.quantities import PERPLEXITIES, STEPS
from madbench.experiment import Protocol
from madbench.grid import LANGUAGE_MODEL, Row
from madbench.jobs import Fidelity
from madbench.suites import LANGUAGE, Column
from madbench.suites.language import LAST_EVALUATIONS

if TYPE_CHECKING:
    import pandas as pd

    from madbench.store.runs import Run

_SOLVED = (
    "[k/n]: k of n seeds solve the task, 90% of the way from chance to the ceiling; the mean of so few, or of seeds"
    f" that split, has no ± (from {LEAST_FOR_LEVEL} seeds on where none solves it). Where {LEAST_SEEDS} seeds agree, up"
    f" to {1 - binomial_interval(LEAST_SEEDS, LEAST_SEEDS)[0]:.0%} of all seeds may still differ (95%)."
)
_BUDGET = "Budget is mixer parameters over softmax attention's, both with the conv taps of the label."


def accuracy_meaning(fidelity: Fidelity) -> str:
    """What the accuracy of a table is, and on what it was chosen where that is not the validation set."""
    if fidelity == "published":
        return "the reference implementation's accuracy (macro within each test batch), chosen on the test set"
    return "token accuracy over all test targets"


def about_mad(protocol: Protocol, collected: pd.DataFrame) -> str:
    """What the accuracies of a table are of, and what it lacks; ``collected`` are its jobs."""
    meaning = f"Percent, {accuracy_meaning(protocol.fidelity)}; mean over n seeds."
    lacking = (~collected.status.isin(["finished", "diverged"])).sum()
    limits = collected.dropna(subset=["ceiling"]).groupby("column", sort=False).ceiling.mean()
    below = [f"{task} {100 * limit:.1f}" for task, limit in limits.items() if limit < 0.9995]
    is_comparable = protocol.profile.comparable_with_paper
    is_theirs = (protocol.fidelity, protocol.budget) == ("published", "paper")
    notes = {
        f"{lacking:,} of {len(collected):,} jobs have no result yet.": lacking,
        f"Token accuracy without guessing is at most: {', '.join(below)}.": below,
        "This profile is not comparable with the published rows, which are full size.": not is_comparable,
        "The published rows used the published fidelity and the paper budget.": is_comparable and not is_theirs,
    }
    shown = (text for text, is_shown in notes.items() if is_shown)
    return " ".join([meaning, *setting_sentences(protocol), *outcome(collected), _BUDGET, *shown, _SOLVED])


def about_language(runs: Sequence[Run], columns: Sequence[Column], first: str = "") -> str:
    """What the losses of a table are of; ``runs`` are of one protocol.

    ``first`` names the row with these settings, where others have their own.
    """
    protocol = language_protocol(*runs)
    training = protocol.profile.training_config(protocol.precision)
    names = {column.name: column.heading for column in columns}
    count = training.steps // training.eval_every
    has_validation, has_perplexity = "validation_loss" in names, PERPLEXITIES[0] in names
    equal_time = names.get("equal_time_validation_loss")
    where, *diverged = outcome(runs)
    differing = ", ".join(timing_differences(runs)).replace("_", " ")
    is_comparable = protocol.profile.comparable_with_paper
    sentences = {
        f"At the settings of {first}:": first,
        "Nats per token, mean over n seeds.": True,
        **dict.fromkeys(setting_sentences(protocol), True),
        f"L5: mean of the last {min(LAST_EVALUATIONS, count)} of {count} evaluations on windows of the training text"
        f"{'; Val: the last loss on validation text' * has_validation}, all labels after the same tokens.": True,
        **dict.fromkeys(_evaluation(runs[0].record.details.get("evaluation", {})), True),
        "PPL: exponential of the last loss on validation text; of 5: of the mean of the last five. Published ones are"
        " of one run each, those of the presets hyper1 and hyper3 smoothed.": has_perplexity,
        f"To x: steps to the first evaluation with training loss below x, one every {training.eval_every:,} steps of"
        f" {training.tokens_per_step:,} tokens. [k/n]: k of n seeds get there; the mean is theirs.": any(
            x.startswith(STEPS) for x in names
        ),
        where: True,
        "Times are wall-clock times of the training steps alone.": "tokens_per_second" in names,
        f"No speed and no loss at equal time: the runs differ in {differing}.": differing and has_validation,
        f"{equal_time}: after the longest training time that all runs reached.": equal_time,
        **dict.fromkeys([*diverged, _BUDGET], True),
        "The published rows are of OpenWebText2 with the paper budget.": is_comparable,
        "Not comparable with the paper's losses, which are of another size, schedule or vocabulary.": (
            not is_comparable and not has_perplexity
        ),
    }
    return " ".join(text for text, is_shown in sentences.items() if is_shown)


def about_baseline(rows: Sequence[Row], of_what: str) -> list[str]:
    """How the rows of a grid are named and compared with the first one."""
    baseline, changes = rows[0], [change.removeprefix(LANGUAGE_MODEL) for row in rows for change in row.changes]
    unnamed = [change for change in baseline.changes if change not in baseline.shown]
    sentences = {
        f"Baseline: {baseline.name}, the first row.": True,
        f"Where a row names nothing else: {', '.join(unnamed)}.": unnamed,
        "The sizes given are the baseline's.": any(change.startswith("model.") for change in changes),
        f"Vs baseline: {of_what}, minus the baseline's, with the 95% interval over seeds; in brackets: none.": rows[1:],
    }
    return [text for text, is_shown in sentences.items() if is_shown]


def equal_time_heading(seconds: float) -> str:
    """Heading of the validation loss after ``seconds`` of training."""
    if seconds >= 7200:
        return f"Val, {seconds / 3600:,.1f} h"
    return f"Val, {seconds:.0f} s" if seconds >= 10 else f"Val, {seconds:.2g} s"


def setting_sentences(protocol: Protocol) -> list[str]:
    """Profile or preset, sizes, corpus, fidelity and budget."""
    changes = f" with {', '.join(protocol.overrides)}" if protocol.overrides else ""
    model = protocol.profile.model_config()
    sizes = f"d_model {model.d_model}, {model.n_layer} blocks, {model.n_head} heads"
    noun, name = protocol.profile.noun.capitalize(), protocol.profile_name
    if protocol.suite is not LANGUAGE:
        return [
            f"{noun} {name}{changes}: {sizes}, {protocol.precision}.",
            f"Fidelity {protocol.fidelity}; budget {protocol.budget}.",
        ]
    training = protocol.profile.training_config(protocol.precision)
    positions = "learned" if model.positions == "learned" else "no"
    return [
        _corpus(protocol.corpus),
        f"{noun} {name}{changes}: {sizes}, context {model.seq_len}, {positions} positions, {protocol.precision}; "
        f"{training.steps:,} steps of {training.tokens_per_step:,} tokens.",
        f"Budget {protocol.budget}.",
    ]


def _corpus(corpus: Any) -> str:
    parts = [f"Corpus {corpus.name} ({corpus.digest[:8]})"]
    if "tokenizer" in corpus.description:
        parts.append(f"tokens: {corpus.description['tokenizer']}")
    for split, name in (("train", "training"), ("val", "validation")):
        if counts := corpus.description.get("splits", {}).get(split):
            size = f" of {counts['bytes']:,} bytes" if counts.get("bytes") else ""
            parts.append(f"{counts['tokens']:,} {name} tokens{size}")
    return ", ".join(parts) + "."


def _evaluation(evaluation: Mapping[str, Any]) -> list[str]:
    if not evaluation:
        return []
    how = "; ".join(f"{name}: {evaluation[name]}" for name in ("train", "val") if name in evaluation)
    return [f"An evaluation is {evaluation['windows']:,} windows of {evaluation['seq_len']:,} tokens ({how})."]


def outcome(runs: pd.DataFrame | Sequence[Run]) -> list[str]:
    """Where MAD jobs or language models were trained, and how many diverged, if any."""
    if isinstance(runs, Sequence):
        devices = [run.record.details.get("device", "an unnamed device") for run in runs]
        statuses = [run.record.status for run in runs]
    else:
        devices, statuses = runs.device.dropna(), runs.status[runs.status != "missing"].tolist()
    count = statuses.count("diverged")
    where = f"Trained on {', '.join(sorted(set(map(str, devices)))) or 'no device yet'}."
    return [where, *([f"{count} of {len(statuses)} runs diverged."] if count else [])]
