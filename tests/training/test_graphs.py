"""Training through fixed buffers equals plain steps, captured on a GPU or not."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from madbench.training import graphs, loop
from madbench.training.graphs import WARM_UP, GraphStep
from madbench.training.member import GroupMember
from madbench.training.stack import Stack
from madbench.training.step import PlainStep
from sample_jobs import loop_arguments, train_job

ROUNDING = {"rel": 1e-4, "abs": 1e-5}


@pytest.fixture
def fixed_buffers_on_cpu(monkeypatch):
    """Use fixed buffers on the CPU, too."""
    made = []
    monkeypatch.setattr(loop, "has_graphs", lambda device: True)
    monkeypatch.setattr(loop, "GraphStep", lambda stack: made.append(GraphStep(stack)) or made[-1])
    return made


@pytest.fixture
def losses(tmp_path):
    """``losses(*jobs, **how)``: the losses of the curves of jobs trained from the start, and the details of their
    records."""

    def train(*jobs, **how):
        works = [tmp_path / f"{job.id}-{len(list(tmp_path.iterdir()))}" for job in jobs]
        for work in works:
            work.mkdir()
        records = loop.train(jobs, works, lambda *_: None, **loop_arguments(**how))
        rows = [
            [value for row in record.curve for name, value in row.items() if name.endswith("loss") or "norm" in name]
            for record in records
        ]
        return rows, [record.details for record in records]

    return train


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [6, None])
def test_training_through_fixed_buffers_equals_plain_steps(micro_batch, make_job, losses, fixed_buffers_on_cpu):
    job = make_job(label="S-cg-q-12o", weight_decay=0.1, epochs=2)
    [fixed], [details] = losses(job, micro_batch=micro_batch)
    assert len(fixed_buffers_on_cpu[-1].shapes) == 2  # the last batch of an epoch is smaller
    assert "cuda_graph" not in details and details["path"] == "dense"
    [plain], _ = losses(job, micro_batch=micro_batch, cuda_graph=False)
    assert fixed == pytest.approx(plain, **ROUNDING)


@pytest.mark.slow
def test_fixed_buffers_give_equal_losses_with_clipping_and_accumulation(tiny, corpus, losses, fixed_buffers_on_cpu):
    how = {"corpora": {corpus.digest: corpus}, "micro_batch": 3}
    job = tiny.make_job(corpus, grad_clip=0.5)
    [fixed], _ = losses(job, **how)
    [plain], _ = losses(job, cuda_graph=False, **how)
    assert fixed_buffers_on_cpu and fixed == pytest.approx(plain, rel=2e-3)


@pytest.mark.slow
def test_a_group_through_fixed_buffers_has_the_numbers_of_single_jobs(make_job, losses, fixed_buffers_on_cpu):
    jobs = [
        make_job(label="S-cg-q-12o", seed=seed, learning_rate=rate, epochs=2) for seed, rate in ((0, 1e-3), (1, 3e-3))
    ]
    fixed, details = losses(*jobs, stacking="always")
    assert [one["group"] for one in details] == [2, 2]
    plain, _ = losses(*jobs, cuda_graph=False)
    for one, expected in zip(fixed, plain):
        assert one == pytest.approx(expected, **ROUNDING)


def test_rates_follow_the_schedule_of_each_member_from_its_step(make_job, tmp_path):
    jobs = [make_job(seed=seed, learning_rate=rate) for seed, rate in ((0, 1e-3), (1, 3e-3))]
    members = [GroupMember(job, tmp_path, print) for job in jobs]
    for member in members:
        member.state.step = 5
    step = GraphStep(Stack(members))
    step([member.rate for member in members])
    assert step.stack.rates.tolist() == [member.rate for member in members]
    assert step.schedule.shape == (12, 2)


@pytest.mark.slow
def test_training_falls_back_to_plain_steps_with_a_warning_if_capture_is_refused(
    make_job, losses, fixed_buffers_on_cpu, monkeypatch, tmp_path
):
    def refuse(stack):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    job = make_job(epochs=1)
    monkeypatch.setattr(loop, "GraphStep", refuse)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    (tmp_path / "work").mkdir()
    said = set()
    record = train_job(job, tmp_path / "work", lambda progress: said.add(progress.get("warning")))
    assert said == {"no CUDA graph: RuntimeError: operation not permitted when stream is capturing"}
    [plain], _ = losses(job, cuda_graph=False)
    assert [row["train_loss"] for row in record.curve] == plain[:1]


@pytest.fixture
def captures(monkeypatch):
    """CUDA graphs on the CPU. A list with one entry per capture: the pool of memory that it was given.

    A captured step is not computed, as on a GPU. A replay computes it, into the tensors that the capture returned.
    """
    pools, capturing, compute = [], [], Stack.compute

    class Graph:
        def pool(self):
            return "pool"

        def replay(self):
            losses, _ = compute(self.stack, self.batches)
            self.losses.copy_(losses)

    @contextmanager
    def capture(graph, pool):
        pools.append(pool)
        capturing.append(graph)
        yield
        capturing.pop()

    def compute_or_capture(stack, batches):
        if not capturing:
            return compute(stack, batches)
        graph = capturing[-1]
        graph.stack, graph.batches, graph.losses = stack, batches, torch.full([len(stack.members)], torch.nan)
        return graph.losses, None

    monkeypatch.setattr(Stack, "compute", compute_or_capture)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda: SimpleNamespace(wait_stream=lambda other: None))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return pools


@pytest.fixture
def take_steps(make_job, tmp_path, captures):
    """``take_steps()``: take 20 steps, whose losses are those of plain ones.

    Return the member, its step, and the numbers of the steps at which a capture happened.
    """

    def take():
        numbers = []
        member, other = (GroupMember(make_job(epochs=9), tmp_path, print) for _ in range(2))
        step, plain = GraphStep(Stack([member])), PlainStep(other)
        step.captures = True
        for _ in range(20):  # 3 batches of 16 and one of 8 an epoch
            [loss], _ = step([member.rate])
            [expected], _ = plain([other.rate])
            assert float(loss) == pytest.approx(float(expected), rel=1e-3)
            numbers += [member.state.step] * (len(captures) - len(numbers))
            member.count_step(loss)
            other.count_step(expected)
        return member, step, numbers

    return take


@pytest.mark.slow
def test_the_first_steps_of_a_shape_are_launched_and_later_ones_replayed(take_steps, captures):
    """Capturing itself needs a GPU. The graphs of both shapes share their memory."""
    _, step, numbers = take_steps()
    assert numbers == [WARM_UP + 1, 4 * (WARM_UP + 1) - 1] and captures == [None, "pool"]
    assert step.details == {"cuda_graph": True}


@pytest.mark.slow
def test_after_a_failed_capture_steps_are_launched_and_the_user_is_warned(take_steps, captures, monkeypatch):
    def refuse(graph, pool):
        captures.append(pool)
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    member, step, numbers = take_steps()
    assert numbers == [WARM_UP + 1] and "cuda_graph" not in step.details
    assert member.warning == "no CUDA graph: operation not permitted when stream is capturing"


@pytest.mark.gpu
@pytest.mark.parametrize("label", ["S-p", "R-cg-q-12o", "G-cg-q-12o"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_captured_step_gives_the_numbers_of_the_launched_one(label, precision, make_job, losses):
    job = make_job(label=label, precision=precision, epochs=4)
    [captured], [details] = losses(job, device="cuda")
    [launched], [other] = losses(job, device="cuda", cuda_graph=False)
    assert details["cuda_graph"] and "cuda_graph" not in other
    assert captured == pytest.approx(launched, rel=2e-2 if precision == "bfloat16" else 3e-3)


@pytest.mark.gpu
def test_captured_groups_have_the_numbers_of_single_jobs(make_job, losses):
    jobs = [make_job(label="S-cg-q-12o", seed=seed, learning_rate=rate) for seed, rate in ((0, 1e-3), (1, 3e-3))]
    captured, details = losses(*jobs, device="cuda", stacking="always")
    launched, _ = losses(*jobs, device="cuda", cuda_graph=False)
    assert all(one["cuda_graph"] and one["group"] == 2 for one in details)
    for one, expected in zip(captured, launched):
        assert one == pytest.approx(expected, rel=3e-3)


@pytest.mark.gpu
def test_a_captured_language_model_accumulates_and_clips(tiny, corpus, losses):
    how = {"corpora": {corpus.digest: corpus}, "micro_batch": 3, "device": "cuda"}
    job = tiny.make_job(corpus, grad_clip=0.5)
    [captured], [details] = losses(job, **how)
    [launched], _ = losses(job, cuda_graph=False, **how)
    assert details["cuda_graph"] and captured == pytest.approx(launched, rel=3e-3)


@pytest.mark.gpu
def test_a_step_that_cannot_be_captured_is_launched_with_a_warning(make_job, tmp_path, monkeypatch):
    compute = Stack.compute

    def waiting(stack, batches):
        losses, norms = compute(stack, batches)
        float(losses[0])  # waits for the device
        return losses, norms

    monkeypatch.setattr(Stack, "compute", waiting)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    said = set()
    record = train_job(make_job(), tmp_path, lambda progress: said.add(progress.get("warning")), device="cuda")
    assert record.status == "finished" and "cuda_graph" not in record.details
    assert any(text and text.startswith("no CUDA graph: ") for text in said)


@pytest.mark.gpu
def test_a_captured_run_resumes_on_a_gpu_and_on_the_cpu(make_job, losses, tmp_path, monkeypatch, stop_at):
    from madbench.jobs import StopTraining

    job = make_job(label="S-cg-q-12o", epochs=4)
    [expected], _ = losses(job, cuda_graph=False)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    work = tmp_path / "work"
    work.mkdir()
    for step, device in ((7, "cuda"), (11, "cuda"), (13, "cpu")):
        with pytest.raises(StopTraining):
            train_job(job, work, stop_at(step), device=device)
    record = train_job(job, work, lambda progress: None, device="cuda")
    found = [value for row in record.curve for name, value in row.items() if name.endswith("loss")]
    assert found == pytest.approx(expected, rel=3e-3)
    assert torch.isfinite(torch.tensor(found)).all() and graphs.has_graphs("cuda")
