"""The loss computed in parts equals that of all logits: value, gradients, autocast, compilation and memory."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from madbench.mixers import build
from madbench.models import blocks, token_loss
from madbench.models.blocks import Backbone
from madbench.models.gpt import GPT
from madbench.models.mad import Autoencoder, MadModel
from madbench.models.token_loss import TokenLoss, chunked_cross_entropy
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.tasks import IGNORE
from madbench.training.cost import PeakMemory, peak_memory_bytes
from sample_jobs import language_job

ROWS, WIDTH, CLASSES = 23, 12, 31


def inputs(dtype=torch.float64, has_bias=True):
    generator = torch.Generator().manual_seed(0)
    shapes = [(ROWS, WIDTH), (CLASSES, WIDTH), *[(CLASSES,)] * has_bias]
    leaves = [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes
    ]
    targets = torch.randint(CLASSES, (ROWS,), generator=generator)
    targets[[0, 7, 22]] = IGNORE
    return [*leaves, *[None] * (not has_bias)], targets


def loss_and_gradients(loss, leaves):
    (3 * loss).backward()
    return loss.detach(), [leaf.grad for leaf in leaves if leaf is not None]


def plain(hidden, weight, bias, targets):
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, ignore_index=IGNORE)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 22, 23, 100])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_chunked_cross_entropy_has_the_loss_and_gradients_of_the_plain_one(rows, has_bias, dtype, tolerance):
    leaves, targets = inputs(dtype, has_bias)
    found, gradients = loss_and_gradients(chunked_cross_entropy(*leaves, targets, rows * CLASSES), leaves)
    others, _ = inputs(torch.float64, has_bias)
    expected, expected_gradients = loss_and_gradients(plain(*others, targets), others)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ignored", [0, 1, 17, 30])
def test_ignored_tokens_have_no_logits_on_a_cpu(ignored, monkeypatch):
    model = MadModel(Backbone(CLASSES, 16, 1, lambda: build("S", 16, 10))).double()
    tokens, targets = torch.randint(CLASSES, (2, 3, 10), generator=torch.Generator().manual_seed(0))
    targets.view(-1)[:ignored] = IGNORE
    hidden, expected = model.hidden(tokens).flatten(0, 1), []
    for loss in (plain(hidden, *model.readout, targets.flatten()), TokenLoss(model)(tokens, targets).double()):
        expected.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(*expected, rtol=1e-4, atol=1e-6, equal_nan=True)
    rows, cross_entropy = [], F.cross_entropy
    monkeypatch.setattr(F, "cross_entropy", lambda x, *a, **how: (rows.append(len(x)), cross_entropy(x, *a, **how))[1])
    TokenLoss(model)(tokens, targets)
    assert rows == [30 - ignored or 30]


@pytest.mark.parametrize("needed", [(True, True, True), (True, False, True), (False, True, False)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [5, 23])
def test_second_derivatives_of_the_loss_in_parts_equal_those_of_the_whole(rows, has_bias, needed):
    found = []
    for loss in (functools.partial(chunked_cross_entropy, most_logits=rows * CLASSES), plain):
        leaves, targets = inputs(has_bias=has_bias)
        for x, is_needed in zip(leaves, needed):
            if x is not None:
                x.requires_grad_(is_needed)
        variables = [x for x in leaves if x is not None and x.requires_grad]
        first = torch.autograd.grad(loss(*leaves, targets).square(), variables, create_graph=True)
        found.append(torch.autograd.grad(sum(x.pow(3).sum() for x in first), variables))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("most_logits", [2**26, 40])
@pytest.mark.parametrize("kind", ["gpt", "mad", "autoencoder"])
def test_second_derivatives_of_a_whole_model_equal_plain_operators(kind, most_logits, monkeypatch):
    torch.manual_seed(0)
    make_mixer = functools.partial(build, "R-c-q", 8, 6)
    model = GPT(CLASSES, 8, 1, make_mixer, 6) if kind == "gpt" else MadModel(Backbone(CLASSES, 8, 1, make_mixer))
    if kind == "autoencoder":
        model = Autoencoder(model.backbone, 6)
    loss, parameters = TokenLoss(model.double()), list(model.parameters())
    tokens, targets = torch.randint(CLASSES, (2, 2, 6), generator=torch.Generator().manual_seed(1))

    def second():
        how, first = {"materialize_grads": True}, loss(tokens, targets).double()
        first = torch.autograd.grad(first, parameters, create_graph=True, **how)
        return torch.autograd.grad(sum(each.pow(3).sum() for each in first), parameters, **how)

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "is_traced", lambda: True)  # torch's own norm
        expected = second()
    monkeypatch.setattr(token_loss, "MOST_LOGITS", most_logits)
    assert all(each.any() for each in expected[-2:])
    torch.testing.assert_close(second(), expected, rtol=1e-4, atol=1e-6)


def test_only_the_gradients_that_are_needed_are_computed():
    leaves, targets = inputs()
    leaves[1].requires_grad_(False)
    chunked_cross_entropy(*leaves, targets, CLASSES).backward()
    assert leaves[1].grad is None and leaves[0].grad is not None and leaves[2].grad is not None
    with torch.no_grad(), PeakMemory() as memory:
        loss = chunked_cross_entropy(*leaves, targets, CLASSES)
    assert loss.item() == pytest.approx(plain(*leaves, targets).item()) and not loss.requires_grad
    assert memory.peak < leaves[1].nbytes


def test_the_loss_in_parts_under_autocast_is_as_near_to_float64():
    """Gradients of the matrix are summed over parts in float32, so that many parts do not reduce precision."""
    exact, targets = inputs()
    _, expected = loss_and_gradients(plain(*exact, targets), exact)
    errors = {}
    for name in ("whole", "parts"):
        leaves, _ = inputs(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            if name == "parts":
                loss = chunked_cross_entropy(*leaves, targets, CLASSES)
            else:
                loss = F.cross_entropy(F.linear(*leaves).float(), targets, ignore_index=IGNORE)
        found, gradients = loss_and_gradients(loss, leaves)
        assert found.dtype == torch.float32
        errors[name] = [((a - b).norm() / b.norm()).item() for a, b in zip(gradients, expected)]
    assert all(parts < max(1.5 * whole, 0.01) for parts, whole in zip(errors["parts"], errors["whole"])), errors


def test_rows_without_a_target_give_no_gradient():
    leaves, targets = inputs()
    chunked_cross_entropy(*leaves, targets, 4 * CLASSES).backward()
    assert (leaves[0].grad[targets == IGNORE] == 0).all() and leaves[0].grad[targets != IGNORE].any(-1).all()


def models():
    torch.manual_seed(0)
    make = functools.partial(build, "S", 16, 8, n_head=2)
    return {
        "tied": GPT(CLASSES, 16, 1, make, 8),
        "untied": GPT(CLASSES, 16, 1, make, 8, output="untied"),
        "mad": MadModel(Backbone(CLASSES, 16, 1, make)),
        "autoencoder": Autoencoder(Backbone(CLASSES, 16, 1, make), max_len=8),
    }


@pytest.mark.parametrize("name", list(models()))
def test_the_loss_in_parts_has_the_gradients_of_the_whole_for_every_model(name, monkeypatch):
    ids = torch.randint(CLASSES, (3, 8), generator=torch.Generator().manual_seed(1))
    targets = ids.flip(1)
    targets[0, :3] = IGNORE
    found = {}
    for limit in (10**6, 2 * CLASSES):
        monkeypatch.setattr(token_loss, "MOST_LOGITS", limit)
        model = models()[name]
        loss = TokenLoss(model)(ids, targets)
        loss.backward()
        assert loss.dtype == torch.float32
        found[limit] = [loss, *(parameter.grad for parameter in model.parameters())]
    for parts, whole in zip(*found.values(), strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_below_the_limit_the_loss_equals_the_loss_of_logits_bit_for_bit():
    ids = torch.randint(CLASSES, (3, 8), generator=torch.Generator().manual_seed(1))
    for model in models().values():
        expected = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        assert TokenLoss(model)(ids, ids).item() == expected.item()


@pytest.mark.slow
def test_a_step_at_the_vocabulary_of_gpt2_keeps_no_logits(monkeypatch):
    """Computed on tensors without data: 12 windows of 1,024 tokens, whose logits would be 2.5 GB."""
    vocab_size = 50304
    job = language_job("S", vocab_size=vocab_size, model=GPTConfig(n_layer=2), training=LanguageTraining())
    parts = peak_memory_bytes(job, 12)
    monkeypatch.setattr(token_loss, "MOST_LOGITS", 2**60)
    longer = replace(job, training=replace(job.training, steps=2 * job.training.steps))  # whose peak is not known yet
    logits = 4 * 12 * 1024 * vocab_size
    assert peak_memory_bytes(longer, 12) - parts > 1.5 * logits


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of the compiler's modules
def test_a_compiled_loss_in_parts_is_one_graph_and_gives_the_same_gradients(monkeypatch):
    monkeypatch.setattr(token_loss, "MOST_LOGITS", 10 * CLASSES)
    ids = torch.randint(CLASSES, (3, 8), generator=torch.Generator().manual_seed(1))
    gradients = []
    for compiled in (False, True):
        model = models()["tied"]
        loss = TokenLoss(model)
        if compiled:
            loss.compile(fullgraph=True, backend="aot_eager")  # torch's own code generation takes most of a minute
        with torch.autocast("cpu", torch.bfloat16):
            loss(ids, ids).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients):
        assert ((one - other).norm() / one.norm()).item() < 0.02


@pytest.mark.parametrize("most_logits", [1, 2**26])
def test_an_output_layer_with_hooks_or_other_code_is_called(most_logits, monkeypatch):
    monkeypatch.setattr(token_loss, "MOST_LOGITS", most_logits)
    model = GPT(11, 8, 1, lambda: build("S", 8, 6, n_head=2), 6, output="untied")
    tokens, targets = torch.randint(11, (2, 6)), torch.randint(11, (2, 6))
    expected = TokenLoss(model)(tokens, targets)
    seen = []
    handle = model.head.register_forward_hook(lambda layer, inputs, output: seen.append(output.shape[-1]))
    torch.testing.assert_close(TokenLoss(model)(tokens, targets), expected)
    assert seen == [11] and model(tokens).shape == (2, 6, 11) and seen == [11, 11]
    handle.remove()
    head = model.head
    model.head = torch.nn.Sequential(head, torch.nn.Linear(11, 11))  # as an adapter would replace it
    logits = model(tokens)
    assert torch.equal(logits, model.head(model.hidden(tokens)))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(TokenLoss(model)(tokens, targets), loss)
