"""The training loop of a group of jobs: steps, rows of the curves, checkpoints and progress reports.

Between two rows of a curve, the host does not wait for the device: losses are summed on the device and read for the
next row. Under torchrun all processes run the loop together, and each handles a part of the sequences of a step. The
first process writes the files.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from madbench.details import Details
from madbench.errors import StoreError
from madbench.jobs import Job, Progress, Record, StopTraining, TrainingCallbacks
from madbench.mixers.ops.threads import torch_threads
from madbench.text.corpus import Corpus
from madbench.training import distributed as world
from madbench.training.graphs import GraphStep, has_graphs
from madbench.training.groups import groups_of
from madbench.training.measured import MakeStep, is_compiled, is_faster, why_not
from madbench.training.member import GroupMember, Stopwatch
from madbench.training.options import LoopOptions
from madbench.training.processes import is_first
from madbench.training.replay import ReplayStack, ReplayStep, can_replay
from madbench.training.stack import Stack
from madbench.training.step import PlainStep, Step

CHECKPOINT_SECONDS = 15.0
CHECKPOINT_SHARE = 0.05  # largest share of time spent on writing checkpoints
REPORT_SECONDS = 0.25


def train(
    jobs: Sequence[Job],
    works: Sequence[Path],
    report: Callable[[Job, Progress], None],
    *,
    device: str = "cpu",
    corpora: Mapping[str, Corpus] | None = None,
    options: LoopOptions = LoopOptions(),
) -> list[Record]:
    """Train and evaluate jobs. A job resumes from the checkpoint in its work folder, if that is intact.

    Jobs train one after another. With ``options.stacking``, jobs whose tensors have equal shapes can train together in
    common steps, on tensors with a leading axis over jobs. Such a job sees the same data in the same order as a job
    that trains alone. Its numbers differ by rounding only, and its checkpoint has the same format.

    Args:
        jobs: the jobs to train.
        works: one work folder per job, for its checkpoint. If the weights of a finished run are kept, they are written
            to ``keep/weights.safetensors`` in this folder. No other process may use the folder meanwhile.
        report: called a few times per second with a job and its progress. If it raises ``StopTraining``, checkpoints
            are written and training stops. If there are several jobs, a :class:`madbench.jobs.TrainingCallbacks` also
            gets the record of each job when this job ends.
        device: a torch device name.
        corpora: the corpora of language jobs, by digest.
        options: how the jobs train.

    Returns: One record per job, ``finished`` or ``diverged``. On the CPU, a resumed run gives the numbers of an
        uninterrupted run with as many threads, bit for bit. Threads, micro-batches, processes and stacking change the
        numbers by rounding only. The recorded seconds are those of training, without evaluations and checkpoints; the
        time of a common step is divided evenly among its jobs.

    Raises:
        ConfigError: the suite cannot train a job with these settings.
        TrainingError: a checkpoint belongs to another job or version, or the corpus of a job is not in ``corpora``.
    """
    records: dict[str, Record] = {}
    make_step = functools.partial(step_of, cuda_graph=options.cuda_graph)

    def finish(compiled: bool, member: GroupMember, details: Details) -> None:
        try:
            if len(jobs) > 1:  # other members may take long, and be interrupted
                member.save(seconds=0)
        finally:  # a full disk may still have room for the record
            records[member.job.id] = member.record(Details(compiled=compiled) | details, options.keep_weights)
            if len(jobs) > 1 and isinstance(report, TrainingCallbacks):
                report.ended(member.job, records[member.job.id])

    def train_group(members: Sequence[GroupMember]) -> None:
        group = members[0].group if can_stack else []
        is_stacked, was_stacked = len(members) > 1, len(group) > 1
        if is_stacked and options.stacking == "measured" and not was_stacked:
            is_stacked = is_faster(members, make_step, options.measurements)
        elif is_stacked and (problem := why_not(_at_lowest_step(members), make_step)):
            is_stacked, members[0].warning = False, f"{len(members)} jobs cannot train as one: {problem}"
        for stack in [members] if is_stacked else [[member] for member in members]:
            for member in stack:
                if not member.is_over and not {*member.group} <= {each.job.id for each in stack}:
                    member.warn_of_group(len(stack))
            compiled = not is_stacked and is_compiled(options.compile, stack[0], make_step, options.measurements)
            make = functools.partial(make_step, compile=compiled)
            GroupLoop(stack, make, functools.partial(finish, compiled)).run()

    folders = {job.id: work for job, work in zip(jobs, works)}
    can_stack = options.stacking != "never" and options.compile == "never" and world.size() == 1
    with torch_threads(options.threads):
        for group in groups_of(jobs, len(jobs) if can_stack else 1):
            members = [
                GroupMember(
                    job,
                    folders[job.id],
                    functools.partial(report, job),
                    device,
                    corpora,
                    options.micro_batch,
                    options.threads,
                )
                for job in group
            ]
            for same in _by_group(members):
                with torch_threads(same[0].state.threads):
                    train_group(same)
    return [records[job.id] for job in jobs]


def _by_group(members: Sequence[GroupMember]) -> list[list[GroupMember]]:
    """Split members into lists that may train together. All members of a list use the same number of threads.

    Members whose group was interrupted stay together, in the group's order, including members that had no checkpoint
    yet. All other members of a list have taken the same number of steps.
    """
    groups, left = [], sorted(members, key=lambda member: -len(member.group))
    while left:
        first, ids, threads = left[0], left[0].group, left[0].state.threads
        if len(ids) > 1:
            same = [each for each in left if not each.state.step or (1 < len(each.group) and {*each.group} <= {*ids})]
            same = [each for each in same if each.state.threads == threads and each.job.id in ids]
            same.sort(key=lambda member: ids.index(member.job.id))
        else:
            same = [each for each in left if len(each.group) == 1 and each.state.threads == threads]
            same = [each for each in same if each.state.step == first.state.step]
        groups.append(same)
        left = [each for each in left if each not in same]
    return groups


def _at_lowest_step(members: Sequence[GroupMember]) -> list[GroupMember]:
    """The members, with each member that is ahead of the others replaced by a copy at the lowest step.

    If a process is killed, it may have saved only some members of a group. The members without a checkpoint then repeat
    the missing steps. The copies keep the size of the group, on which the rounding of the other members depends. The
    weights of the copies have no influence on the other members.
    """
    lowest = min(member.state.step for member in members)
    return [member if member.state.step == lowest else member.copy(lowest) for member in members]


def step_of(members: Sequence[GroupMember], compile: bool = False, cuda_graph: bool = True) -> Step:
    """Make the object that takes the training steps of ``members``, which have taken the same number of steps so far.

    On a GPU each step is launched as one CUDA graph, if ``cuda_graph`` is true and a first step on copies succeeds. On
    a CPU recorded passes are replayed, if all members support that and ``compile`` is False. Otherwise steps run
    operation by operation. If ``compile`` is true, the loss is compiled for a CUDA graph and for a single member.
    """
    if cuda_graph and has_graphs(members[0].device):
        if not (problem := why_not(members, graph_step)):
            return graph_step(members, compile)
        members[0].warning = f"no CUDA graph: {problem}"
    is_replayed = not compile and all(map(can_replay, members))
    if len(members) > 1:
        return ReplayStack(members) if is_replayed else Stack(members)
    return ReplayStep(members[0]) if is_replayed else PlainStep(members[0], compile)


def graph_step(members: Sequence[GroupMember], compile: bool = False) -> GraphStep:
    """Make the object that takes the steps of ``members`` as CUDA graphs.

    If ``compile`` is true, the loss is compiled.
    """
    if compile:
        members[0].trial.loss.compile()
    return GraphStep(Stack(members))


class GroupLoop:
    """The training loop of a group. Its members take their steps together until all of them are over.

    After an interruption, some members may be ahead of others. They wait until the others have caught up. In the
    methods, ``live`` are the members that do not wait: all that have taken the lowest number of steps.

    If an evaluation or a call of ``finish`` raises an error for one of several members, the other members train on. The
    first such error is raised after all members are over. ``StoreError`` is raised at once.
    """

    def __init__(
        self,
        members: Sequence[GroupMember],
        make_step: MakeStep,
        finish: Callable[[GroupMember, Details], None],
    ):
        """Prepare to train a group. Call :meth:`run` to train it.

        Args:
            members: the members, which may have taken different numbers of steps.
            make_step: makes the step at the start, and again whenever the set of members changes.
            finish: called once for each member, when it is over, with the member and the details of its steps.
        """
        self.make_step, self.finish = make_step, finish
        self.group = list(members)  # the members that are not over
        self.stacked: list[GroupMember] = []  # the members of a step, with copies of members that are ahead
        self.step: Step | None = None  # None if it has to be made
        self.first_step: Step | None = None
        self.errors: list[Exception] = []
        self.keeps_errors = len(members) > 1
        self.watch = Stopwatch(members[0].device)
        self.last_save = time.monotonic()
        self.last_report = -math.inf if any(member.warning for member in members) else self.last_save
        self.save_every = CHECKPOINT_SECONDS

    def run(self) -> None:
        """Train the members until all are over.

        Raises ``StopTraining``, after writing checkpoints, if a report asks for it.
        """
        while self.group:
            now = min(member.state.step for member in self.group)
            live = [member for member in self.group if member.state.step == now]
            if over := [member for member in live if member.is_over]:
                self.end(over, live)
                continue
            rates, norms = self.take_step(now, live)
            if failed := self.add_rows(live, rates, norms):
                self.remove(failed, live)
                continue
            clock = time.monotonic()
            self.save_in_time(live, clock)
            self.report(live, clock)
        if self.errors:
            raise self.errors[0]

    def end(self, over: Sequence[GroupMember], live: Sequence[GroupMember]) -> None:
        """Take the members ``over``, whose training has ended, out of the group. Call :attr:`finish` for each of them.

        ``live`` are the members that do not wait for others. They include those in ``over``.
        """
        seconds = self.watch.lap() / len(live)
        for member in live:
            member.state.seconds += seconds
        try:
            self.remove(over, live)
        finally:  # a full disk may have no room for their checkpoints
            for member in over:
                self.raises(self.finish, member, self.first_step.details if self.first_step else {})
        self.watch.lap()

    def remove(self, gone: Sequence[GroupMember], live: Sequence[GroupMember]) -> None:
        """Take the members ``gone`` out of the group, and write checkpoints of the other members in ``live``.

        ``live`` are the members that do not wait for others. Without these checkpoints, a killed and resumed run would
        repeat steps in a group of another size, with other rounding.
        """
        self.group, self.step = [member for member in self.group if member not in gone], None
        left = [member for member in live if member not in gone]
        for member in left:
            member.note_group([each.job.id for each in self.group])
        if left and is_first():
            self.save(left)

    def take_step(self, now: int, live: Sequence[GroupMember]) -> tuple[list[float], list[Tensor | None]]:
        """Take step ``now`` of the members ``live``, and the same step of copies of the members that wait for them.

        Return the learning rate and the gradient norm of each member of :attr:`stacked`, in two lists. These are the
        members of the step, copies included.
        """
        if self.step is None:
            self.stacked = _at_lowest_step(self.group)
            self.step = self.make_step(self.stacked)
            for member in live:
                member.note_group([each.job.id for each in self.group])
        self.first_step = self.first_step or self.step
        rates = [member.rate for member in self.stacked]
        losses, norms = self.step(rates)
        for member, loss in zip(self.stacked, losses):
            member.count_step(loss)
        if any(member.state.step == now + 1 for member in self.group if member not in live):
            self.step = None  # a copy has caught up with its member
        return rates, norms

    def add_rows(
        self, live: Sequence[GroupMember], rates: Sequence[float], norms: Sequence[Tensor | None]
    ) -> list[GroupMember]:
        """Add a row to the curve of each member in ``live``, if the curve has a row at this step.

        ``rates`` and ``norms`` have the learning rate and the gradient norm of each member of :attr:`stacked`. A norm
        is None if it was not measured. Return the members whose evaluation raised an error.
        """
        if not live[0].has_row:
            return []
        seconds = self.watch.lap() / len(live)
        rows = [row for row in zip(self.stacked, rates, norms) if row[0] in live]
        failed = [member for member, rate, norm in rows if self.raises(member.add_row, seconds, rate, norm)]
        self.watch.lap()
        return failed

    def save_in_time(self, live: Sequence[GroupMember], clock: float) -> None:
        """Write checkpoints of the members ``live`` if enough time has passed since the last checkpoints.

        ``clock`` is the present time in seconds.
        """
        if is_first() and clock - self.last_save > self.save_every:
            self.save(live)
            self.save_every = max(CHECKPOINT_SECONDS, self.watch.lap() / CHECKPOINT_SHARE)
            self.last_save = time.monotonic()

    def save(self, live: Sequence[GroupMember]) -> None:
        """Write checkpoints of the members ``live``."""
        seconds = self.watch.lap() / len(live)
        for member in live:
            member.save(seconds)

    def report(self, live: Sequence[GroupMember], clock: float) -> None:
        """Report the progress of the members ``live`` if the last report is more than ``REPORT_SECONDS`` ago.

        ``clock`` is the present time in seconds. If a report in any process raises ``StopTraining``, checkpoints of
        ``live`` are written and all processes raise it.
        """
        is_stopped = False
        if clock - self.last_report > REPORT_SECONDS:
            self.last_report = clock
            try:
                for member in live:
                    member.report()
            except StopTraining:
                is_stopped = True
        if world.agree(is_stopped):
            if is_first():
                self.save(live)
            raise StopTraining

    def raises(self, act: Callable[..., None], *arguments: Any) -> bool:
        """Call ``act`` and return True if it raised an error. The error is added to ``errors``.

        ``StoreError``, and any error in a group of one member, is raised instead.
        """
        try:
            act(*arguments)
        except StoreError:
            raise
        except Exception as error:
            if not self.keeps_errors:
                raise
            self.errors.append(error)
            return True
        return False
