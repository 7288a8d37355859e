"""The training loop: steps of all members of a group, rows of their curves, checkpoints, reports.

A step never waits for the device: the loss is summed there and read only for the rows of the curve. Under torchrun all
processes run the loop together, each on its share of a step's sequences. The first process writes the files.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from madbench.errors import StoreError
from madbench.jobs import Job, Record, Report, StopTraining
from madbench.text.corpus import Corpus
from madbench.training import distributed as world
from madbench.training.graphs import GraphStep, has_graphs
from madbench.training.measured import Compile, MakeStep, is_compiled, is_faster, why_not
from madbench.training.member import GroupMember, Stopwatch
from madbench.training.replay import ReplayStack, ReplayStep, can_replay
from madbench.training.stack import Stack, groups_of
from madbench.training.step import PlainStep, Step

CHECKPOINT_SECONDS = 15.0
CHECKPOINT_SHARE = 0.05  # largest share of time spent on writing checkpoints
REPORT_SECONDS = 0.25


def train(
    jobs: Sequence[Job],
    works: Sequence[Path],
    report: Callable[[Job, dict[str, Any]], None],
    *,
    device: str = "cpu",
    corpora: Mapping[str, Corpus] | None = None,
    micro_batch: int | None = None,
    compile: Compile = "never",
    keep_weights: bool = False,
    cuda_graph: bool = True,
    stacking: Literal["never", "measured", "always"] = "never",
    measurements: Path | None = None,
    threads: int | None = None,
) -> list[Record]:
    """Train and evaluate a group of jobs, each resumed from the checkpoint in its work folder if that is intact.

    Jobs train one after another. With ``stacking``, jobs of equal shapes can share their steps, whose tensors have a
    leading axis over jobs. A stacked job sees the same data in the same order as a job that trains alone, and its
    numbers differ by rounding only. The format of its checkpoint is also the same.

    Args:
        jobs: what to train.
        works: a folder for each job's checkpoint, and for ``keep/weights.safetensors`` of a finished run that keeps its
            weights. No other process may use it meanwhile.
        report: called a few times per second with the progress of each job. If it raises ``StopTraining``, the state of
            all jobs is saved first. A :class:`madbench.jobs.Report` also gets the record of each job as soon as it
            ends.
        device: a torch device name.
        corpora: the corpora of language jobs, by digest.
        micro_batch: sequences of a job that go through the model at once; gradients are accumulated over micro-batches.
        compile: train through ``torch.compile``; ``auto``: if that saves time (:mod:`madbench.training.measured`).
            Evaluations are not compiled: they are few.
        keep_weights: keep the weights of a suite that otherwise keeps none. This changes no number of the job.
        cuda_graph: launch each step as one CUDA graph, on a GPU and if the run has one process.
        stacking: let jobs of equal shapes share a step; ``measured``: if a measurement finds that faster.
        measurements: folder of earlier measurements.
        threads: number of CPU threads; by default this process's, or fewer if a resumed run began with fewer.

    Returns: One record per job, ``finished`` or ``diverged``. On the CPU, a resumed run gives the numbers of an
        uninterrupted run with as many threads, bit for bit. Threads, micro-batches, processes and stacking change them
        by rounding only. Seconds count training only, without evaluations and checkpoints; jobs that share a step share
        its time evenly.

    Raises:
        ConfigError: the suite cannot train the job with these settings.
        TrainingError: the checkpoint belongs to another job or version, or the corpus is not the job's.
    """
    records: dict[str, Record] = {}
    make_step = functools.partial(step_of, cuda_graph=cuda_graph)

    def finish(compiled: bool, member: GroupMember, details: Mapping[str, Any]) -> None:
        try:
            if len(jobs) > 1:  # other members may take long, and be interrupted
                member.save(seconds=0)
        finally:  # a full disk may still have room for the record
            records[member.job.id] = member.record({"compiled": compiled, **details}, keep_weights)
            if len(jobs) > 1 and isinstance(report, Report):
                report.ended(member.job, records[member.job.id])

    def train_group(members: Sequence[GroupMember]) -> None:
        group = members[0].group if can_stack else []
        is_stacked, was_stacked = len(members) > 1, len(group) > 1
        if is_stacked and stacking == "measured" and not was_stacked:
            is_stacked = is_faster(members, make_step, measurements)
        elif is_stacked and (problem := why_not(_at_lowest_step(members), make_step)):
            is_stacked, members[0].warning = False, f"{len(members)} jobs cannot train as one: {problem}"
        for stack in [members] if is_stacked else [[member] for member in members]:
            for member in stack:
                if not member.is_over and not {*member.group} <= {each.job.id for each in stack}:
                    member.warn_of_group(len(stack))
            compiled = not is_stacked and is_compiled(compile, stack[0], make_step, measurements)
            make = functools.partial(make_step, compile=compiled)
            train_together(stack, make, functools.partial(finish, compiled))

    folders = {job.id: work for job, work in zip(jobs, works)}
    can_stack = stacking != "never" and compile == "never" and world.size() == 1
    with _threads(threads):
        for group in groups_of(jobs, len(jobs) if can_stack else 1):
            members = [
                GroupMember(job, folders[job.id], functools.partial(report, job), device, corpora, micro_batch, threads)
                for job in group
            ]
            for same in _by_group(members):
                with _threads(same[0].state.threads):
                    train_group(same)
    return [records[job.id] for job in jobs]


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute with ``count`` threads in the block; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _by_group(members: Sequence[GroupMember]) -> list[list[GroupMember]]:
    """Lists of members that train in one step, with equal numbers of threads.

    Members of an interrupted group stay together, in order, even if some were never saved. Other members are grouped
    only if they have taken the same number of steps.
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
    """The members, with copies in place of members that have taken more steps than others.

    A killed process may have saved only some members of a group. The others repeat their missing steps in a step of the
    same size. Their rounding depends on that size, not on the numbers of the copies.
    """
    lowest = min(member.state.step for member in members)
    return [member if member.state.step == lowest else member.copy(lowest) for member in members]


def step_of(members: Sequence[GroupMember], compile: bool = False, cuda_graph: bool = True) -> Step:
    """The step of members at the same step number: if possible, one CUDA graph on a GPU, or a replay on a CPU."""
    if cuda_graph and has_graphs(members[0].device):
        if not (problem := why_not(members, graph_step)):
            return graph_step(members, compile)
        members[0].warning = f"no CUDA graph: {problem}"
    is_replayed = not compile and all(map(can_replay, members))
    if len(members) > 1:
        return ReplayStack(members) if is_replayed else Stack(members)
    return ReplayStep(members[0]) if is_replayed else PlainStep(members[0], compile)


def graph_step(members: Sequence[GroupMember], compile: bool = False) -> GraphStep:
    """A step that is launched as one CUDA graph."""
    if compile:
        members[0].trial.loss.compile()
    return GraphStep(Stack(members))


def train_together(
    members: Sequence[GroupMember], make_step: MakeStep, finish: Callable[[GroupMember, Mapping[str, Any]], None]
) -> None:
    """Train members. ``finish`` gets each member and its step details once it is over.

    ``make_step`` makes the step of the remaining members whenever these change. If the evaluation or the end of one
    member raises an error, the other members go on. The error is raised once they are over.
    """
    group, step, first_step = list(members), None, None
    stacked: list[GroupMember] = []
    errors: list[Exception] = []
    watch = Stopwatch(members[0].device)
    last_save = time.monotonic()
    last_report = -math.inf if any(member.warning for member in members) else last_save
    save_every = CHECKPOINT_SECONDS

    def raises(act: Callable[..., None], *arguments: Any) -> bool:
        """Call ``act``. True if it raised an error, which concerns one of several members, so that the others go on."""
        try:
            act(*arguments)
        except StoreError:
            raise
        except Exception as error:
            if len(members) == 1:
                raise
            errors.append(error)
            return True
        return False

    while group:
        now = min(member.state.step for member in group)
        live = [member for member in group if member.state.step == now]
        if over := [member for member in live if member.is_over]:
            seconds = watch.lap() / len(live)
            for member in live:
                member.state.seconds += seconds
            group, step = [member for member in group if member not in over], None
            try:
                _leave(group, [member for member in live if member not in over], watch)
            finally:  # a full disk may have no room for their checkpoints
                for member in over:
                    raises(finish, member, first_step.details if first_step else {})
            watch.lap()
            continue
        if step is None:
            stacked = _at_lowest_step(group)
            step = make_step(stacked)
            for member in live:
                member.note_group([each.job.id for each in group])
        first_step = first_step or step
        rates = [member.rate for member in stacked]
        losses, norms = step(rates)
        for member, loss in zip(stacked, losses):
            member.count_step(loss)
        if any(member.state.step == now + 1 for member in group if member not in live):
            step = None  # the members are no copies any more
        failed = []
        if live[0].has_row:
            seconds = watch.lap() / len(live)
            for member, rate, norm in zip(stacked, rates, norms):
                if member in live and raises(member.add_row, seconds, rate, norm):
                    failed.append(member)
            watch.lap()
        if failed:
            group, live = ([member for member in of if member not in failed] for of in (group, live))
            step = None
            _leave(group, live, watch)
            continue
        clock = time.monotonic()
        if world.is_first() and clock - last_save > save_every:
            _save(live, watch)
            save_every = max(CHECKPOINT_SECONDS, watch.lap() / CHECKPOINT_SHARE)
            last_save = time.monotonic()
        is_stopped = False
        if clock - last_report > REPORT_SECONDS:
            last_report = clock
            try:
                for member in live:
                    member.report()
            except StopTraining:
                is_stopped = True
        if world.agree(is_stopped):
            if world.is_first():
                _save(live, watch)
            raise StopTraining
    if errors:
        raise errors[0]


def _leave(group: Sequence[GroupMember], live: Sequence[GroupMember], watch: Stopwatch) -> None:
    """Save the ``live`` members of a group after others have left it.

    If this process dies, they then never repeat a step that they shared with the others.
    """
    for member in live:
        member.note_group([each.job.id for each in group])
    if live and world.is_first():
        _save(live, watch)


def _save(members: Sequence[GroupMember], watch: Stopwatch) -> None:
    seconds = watch.lap() / len(members)
    for member in members:
        member.save(seconds)
