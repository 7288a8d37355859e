"""What ``madbench lm --dry-run`` shows: parameters by group, FLOPs two ways, memory, and a time estimate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.language_experiment import LanguageExperiment


def language_plan(
    experiment: LanguageExperiment, slots: int | None, console: Console, micro_batch: int | None = None
) -> dict[str, Any]:
    """Cost by label, and seconds from a short calibration of each on the device."""
    from rich.progress import track

    from madbench.cli.plan import missing_jobs
    from madbench.training.language_cost import estimate_seconds, language_cost

    todo = [job.label for job in missing_jobs(experiment)]
    by_label = {job.label: job for job in experiment.jobs}
    jobs = track(by_label.items(), "counting and timing a few steps", console=console, transient=True)
    labels = []
    for label, job in jobs:
        cost = language_cost(job, micro_batch)
        training, evaluation = estimate_seconds(job, experiment.device, micro_batch)
        labels.append(
            {
                "label": label,
                "jobs": sum(job.label == label for job in experiment.jobs),
                "todo": todo.count(label),
                "parameters": cost.parameters,
                **dataclasses.asdict(cost),
                "estimated_training_seconds": training,
                "estimated_evaluation_seconds": evaluation,
            }
        )
    seconds = sum(
        row["todo"] * (row["estimated_training_seconds"] + row["estimated_evaluation_seconds"]) for row in labels
    )
    return {"labels": labels, "todo": len(todo), "slots": slots or 1, "estimated_seconds": seconds}


def print_language_plan(experiment: LanguageExperiment, plan: dict[str, Any]) -> None:
    """The plan of :func:`language_plan` as tables."""
    from rich.console import Console

    from madbench.cli.tables import PLAIN, plain_table, print_whole
    from madbench.cli.text import count_of_jobs, duration, quantity

    console = Console(highlight=False)
    print_whole(console, plain_table(_groups(plan["labels"]), right=tuple(row["label"] for row in plan["labels"])))
    console.print()
    rows = [
        {
            "label": row["label"],
            "runs": row["jobs"],
            "to do": row["todo"],
            "FLOPs/token": quantity(row["flops_per_token"]),
            "all pairs": "-"
            if row["all_pairs_flops_per_token"] is None
            else quantity(row["all_pairs_flops_per_token"]),
            "counter": quantity(row["counted_flops_per_token"]),
            "FLOPs a run": quantity(row["flops"]),
            "memory": f"{quantity(row['memory_bytes'])}B",
            "time a run": duration(row["estimated_training_seconds"] + row["estimated_evaluation_seconds"]),
        }
        for row in plan["labels"]
    ]
    print_whole(console, plain_table(rows, right=tuple(rows[0])[1:]))
    training, micro_batch = experiment.jobs[0].training, plan["labels"][0]["micro_batch"]
    of_kind = {
        kind: sum(row[f"estimated_{kind}_seconds"] for row in plan["labels"]) for kind in ("training", "evaluation")
    }
    console.print(
        f"{count_of_jobs(len(experiment.jobs))}, {plan['todo']} to do; about {duration(plan['estimated_seconds'])} on "
        f"{experiment.device}, one after the other, {of_kind['evaluation'] / sum(of_kind.values()):.0%} of it evaluations. "
        f"{training.steps:,} steps of {training.tokens_per_step:,} tokens, {micro_batch} windows of "
        f"{experiment.jobs[0].model.seq_len} tokens at a time. FLOPs are of training, forward and backward: with the "
        "pairs that causality keeps, with all pairs as the dense path computes, and as torch counts those. Memory is "
        "that of tensors.",
        **(PLAIN | {"soft_wrap": False}),
    )


def _groups(labels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a group of parameters, a column a label."""
    names = dict.fromkeys((row["group"], row["decays"]) for label in labels for row in label["parameter_groups"])
    counts = {
        label["label"]: {(row["group"], row["decays"]): row["parameters"] for row in label["parameter_groups"]}
        for label in labels
    }
    rows = [
        {"parameters": group, "weight decay": "yes" if decays else "no"}
        | {label: f"{of_label.get((group, decays), 0):,}" for label, of_label in counts.items()}
        for group, decays in names
    ]
    totals = {label["label"]: f"{label['parameters']:,}" for label in labels}
    return [*rows, {"parameters": "all", "weight decay": ""} | totals]
