"""The signals suite: images of digits cut into patches, and forecasts of a multivariate time series.

Mixers may see all tokens, not only earlier ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from madbench.config import TASKS as TASK_FILES
from madbench.config import Override, from_mapping
from madbench.errors import LabelError
from madbench.jobs import Budget, Fidelity, Job, Precision
from madbench.labels import family_of, parse
from madbench.labels.budgets import COUNTINGS
from madbench.mixers import families_that_see_all
from madbench.models.shapes import SignalModelConfig
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column, ShownMetric
from madbench.suites.compute import with_steps
from madbench.suites.overrides import Plan, canonical_job, drop_ineffective_overrides
from madbench.suites.planning import PlannedRun, plan_jobs, solve_mixers
from madbench.suites.profile import Profile, changed_overrides, check_task
from madbench.suites.training import EpochTraining, Schedule

if TYPE_CHECKING:
    from madbench.tasks.signals.digits import Digits
    from madbench.tasks.signals.series import Series

NAME = "signals"
TASKS = ("digits", "forecasting")
"""The tasks of the suite, in the order of its table."""


@dataclass(frozen=True, kw_only=True)
class SignalTraining(EpochTraining):
    """The training settings of a signals job. The cosine ends at zero unless ``min_learning_rate`` is set."""

    recorded = (
        "learning_rate", "weight_decay", "epochs", "batch_size", "warmup_steps", "precision",
    )  # fmt: skip

    learning_rate: float = 3e-3
    """AdamW's step size at the end of the warm-up."""
    warmup_steps: int = 0
    """Steps in which the learning rate rises linearly."""


SignalJob: TypeAlias = Job[SignalModelConfig, SignalTraining]
"""A job of the signals suite."""


@dataclass(frozen=True)
class SignalTask:
    """The settings of a profile for one task."""

    setting: dict[str, Any] = field(default_factory=dict)
    """Parameters of the task."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings."""


@dataclass(frozen=True, kw_only=True)
class SignalProfile(Profile[SignalModelConfig]):
    """A profile of the signals suite: the size of the model, the settings of its tasks, and the training settings."""

    folder = TASK_FILES / NAME
    suite_name = NAME
    noun = "signal profile"
    Model = SignalModelConfig
    Training = SignalTraining
    Task = SignalTask

    tasks: dict[str, SignalTask] = field(default_factory=dict)
    """The setup of each task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for task, plan in self.tasks.items():
            check_task(task, TASKS, "tasks: ")
            _setting(task, plan.setting, f"tasks: {task}: setting")
            self.check_training(plan.training, f"tasks: {task}: training")

    def plan(self, task: str) -> SignalTask:
        """The settings of the profile for a task. They are empty if the profile does not name the task."""
        return self.tasks.get(task, SignalTask())

    def setting(self, task: str) -> dict[str, Any]:
        """The task setting that the profile trains, as a mapping of its fields."""
        return dataclasses.asdict(_setting(task, self.plan(task).setting))

    def training_config(self, task: str, precision: Precision) -> SignalTraining:
        """The training settings of a task, with the given precision."""
        values = {**self.training, **self.plan(task).training, "precision": precision}
        return from_mapping(SignalTraining, values, f"training of {task}")

    def jobs_like(self, job: Job[SignalModelConfig]) -> list[Job[SignalModelConfig]]:
        training = self.training_config(job.task, job.training.precision)
        return [dataclasses.replace(job, setting=self.setting(job.task), model=self.model_config(), training=training)]

    def training_changes(self, job: Job) -> list[Override]:
        training = vars(self.training_config(job.task, job.training.precision))
        return [
            *changed_overrides("training", vars(job.training), training),
            *changed_overrides(f"tasks.{job.task}.setting", job.setting, self.setting(job.task)),
        ]


def _check_sees_all(label: str) -> None:
    if not getattr(family_of(label), "is_bidirectional", False):
        raise LabelError(
            f"{label} sees only earlier tokens, but these tasks show all tokens to a mixer; {families_that_see_all()}"
            " can see all tokens; model.causal=true trains the label causally"
        )


def setting_of(job: Job) -> Digits | Series:
    """The task setting of a job."""
    return _setting(job.task, job.setting)


def _setting(task: str, mapping: dict[str, Any], where: str = "") -> Digits | Series:
    from madbench.tasks.signals import KINDS

    return from_mapping(KINDS[task], mapping, where or f"setting of {task}")


class SignalSuite(Suite[SignalProfile, SignalJob]):
    """The suite of digit images and of a multivariate time series.

    Digits are scored by accuracy, and the series by the share of its variance that the forecast explains.
    """

    name = NAME
    title = "Images and series"
    Profile = SignalProfile
    default = "quick"
    trial = "madbench.suites.signals.trial:SignalTrial"
    scoring = "madbench.suites.signals.scores:SignalScoring"
    sort_order = 3
    budgets = (*COUNTINGS, "compute")  # "flops" and "state" assume causal mixers, and rows here may see all tokens
    not_inspected = "has tokens of real numbers, which have no ids"
    measure = "accuracy, or the share of the variance that is explained, in percent"
    shown_metric = ShownMetric("score", "{:.1%}", "score {:.3f}")

    def plan(  # type: ignore[override]  # takes no corpus, because the suite reads no text
        self,
        labels: Iterable[str],
        profile: SignalProfile,
        *,
        seeds: Sequence[int] = (0,),
        tasks: Iterable[str] | None = None,
        fidelity: Fidelity = "corrected",
        budget: Budget = "strict",
        precision: Precision = "float32",
    ) -> Plan[SignalJob]:
        """Plan jobs of the signals suite in the order label, task, seed, without duplicates.

        Raises ``LabelError`` for a label that sees only earlier tokens if the profile's mixers see all tokens. Raises
        ``BudgetError`` if no ranks of a label meet the budget, and ``ConfigError`` for an unknown task.
        """
        chosen = list(TASKS if tasks is None else tasks)
        for task in chosen:
            check_task(task, TASKS)

        def planned(profile: SignalProfile, labels: Sequence[str]) -> list[SignalJob]:
            if not profile.model_config().causal:
                for label in labels:
                    _check_sees_all(str(parse(label)))
            runs = [
                PlannedRun(task, setting, _setting(task, setting).length, profile.training_config(task, precision))
                for task in dict.fromkeys(chosen)
                for setting in [profile.setting(task)]
            ]
            return with_steps(plan_jobs(NAME, labels, profile, runs, budget, fidelity), self.size)

        return drop_ineffective_overrides(profile, labels, seeds, planned, self.canonical)

    def canonical(self, job: SignalJob) -> SignalJob:
        """The canonical form of a job. See :meth:`madbench.suites.base.Suite.canonical`."""
        setting, model = setting_of(job), job.model
        training = job.training.canonical(lambda training: self.schedule(dataclasses.replace(job, training=training)))
        training = dataclasses.replace(training, batch_size=min(training.batch_size, setting.num_train_examples))
        model = dataclasses.replace(model, mlp_width=model.inner_width)
        return canonical_job(job, model.d_model, setting.length, is_shorter=False, model=model, training=training)

    def schedule(self, job: SignalJob) -> Schedule:
        """The learning-rate schedule of a job."""
        examples = setting_of(job).num_train_examples
        return job.training.schedule(job.training.total_steps(examples), matched=job.steps)

    def size(self, job: SignalJob) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""
        setting, config = setting_of(job), job.training
        outputs = setting.classes or setting.channels - 1
        mixers = solve_mixers(job, setting.length)
        cost = job.model.cost(mixers, setting.length, setting.channels, outputs)
        seen, epochs = config.seen(setting.num_train_examples, job.steps)
        judged = epochs * setting.num_validation_examples + setting.num_test_examples
        return JobSize(
            parameters=cost.parameters,
            steps=self.schedule(job).steps,
            seq_len=setting.length,
            sequences_per_step=min(config.batch_size, setting.num_train_examples),
            flops_per_token=cost.flops_per_token,
            trained_tokens=seen * setting.length,
            evaluated_tokens=judged * setting.length,
            mixers=mixers,
            is_causal=job.model.causal,
        )

    def batch_sizes(self, job: SignalJob) -> tuple[int, ...]:
        return job.training.batch_sizes(setting_of(job).num_train_examples)

    def tasks(self) -> Sequence[str]:
        return TASKS

    def task_column(self, task: str) -> Column:
        from madbench.tasks.signals import KINDS

        kind = KINDS[task]
        if kind.classes:
            return dataclasses.replace(super().task_column(task), heading=kind.heading, title=kind.title)
        return Column.percent(
            task,
            kind.heading,
            limits=(-math.inf, 100.0),
            title=kind.title,
            axis="variance explained, %",
            difference="percentage points of the variance",
        )

    def about_task(self, task: str) -> str:
        from madbench.tasks.signals import KINDS

        return KINDS[task].description

    def runs_per_label(self, profile: SignalProfile) -> int:
        return len(TASKS)

    def check_profile(self, profile: SignalProfile) -> tuple[str, set[int]]:
        lengths = {_setting(task, profile.setting(task)).length for task in TASKS}
        return f"{self.runs_per_label(profile)} runs per label", lengths


SUITE = SIGNALS = SignalSuite()
