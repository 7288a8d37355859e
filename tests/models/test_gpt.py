"""The GPT-2 model around a mixer: its equations, initial weights, counts, and decoding token by token."""

from __future__ import annotations

import math
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from madbench.errors import TrainingError
from madbench.jobs import identifying_fields
from madbench.mixers import build
from madbench.models.gpt import GPT
from madbench.models.token_loss import TokenLoss
from madbench.suites import suite_of
from madbench.suites.language.suite import LANGUAGE, LanguageProfile
from madbench.text.corpus import imagined_corpus

DECODABLE = ("S", "S-p", "S-c", "R-cg-q", "R-12o!", "R-p-q-1", "G-cg-q-12o", "Mamba-3", "mLSTM", "MLA", "PaTH")


def make(label="S", vocab_size=11, d_model=16, n_layer=2, seq_len=8, n_head=2, positions="none"):
    torch.manual_seed(0)
    how = {"n_head": n_head, "budget": "paper"}
    return GPT(vocab_size, d_model, n_layer, lambda: build(label, d_model, seq_len, **how), seq_len, positions)


def widen(model):
    """Set weights in float64, large enough that every path through the model matters."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model.double()


def tokens(length=8, batch=3, vocab_size=11):
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(1))


def layer_norm(x, gain):
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + 1e-5) * gain


@pytest.mark.parametrize("positions", ["none", "learned"])
def test_the_model_is_pre_norm_blocks_and_an_output_tied_to_the_embedding(positions):
    model, ids = widen(make("R-g-q-12o", positions=positions)), tokens(length=6)
    w = model.state_dict()
    x = w["embedding.weight"][ids]
    if positions == "learned":
        x = x + w["positions.weight"][:6]
    for n, block in enumerate(model.blocks):
        x = x + block.mixer(layer_norm(x, w[f"blocks.{n}.mixer_norm.weight"]))
        inner = layer_norm(x, w[f"blocks.{n}.mlp_norm.weight"]) @ w[f"blocks.{n}.mlp.up.weight"].T
        x = x + (inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))) @ w[f"blocks.{n}.mlp.down.weight"].T
    torch.testing.assert_close(model(ids), layer_norm(x, w["norm.weight"]) @ w["embedding.weight"].T)


def test_a_model_with_a_given_swiglu_width_and_untied_output_equals_the_equations():
    torch.manual_seed(0)
    mixers = lambda: build("S", 16, 8, n_head=2)  # noqa: E731
    model, ids = widen(GPT(11, 16, 1, mixers, 8, mlp_width=24, mlp="swiglu", output="untied")), tokens(length=6)
    w = model.state_dict()
    assert w["blocks.0.mlp.gate.weight"].shape == (24, 16)
    x = w["embedding.weight"][ids]
    x = x + model.blocks[0].mixer(layer_norm(x, w["blocks.0.mixer_norm.weight"]))
    y = layer_norm(x, w["blocks.0.mlp_norm.weight"])
    gate, up = (y @ w[f"blocks.0.mlp.{name}.weight"].T for name in ("gate", "up"))
    x = x + (gate * torch.sigmoid(gate) * up) @ w["blocks.0.mlp.down.weight"].T
    torch.testing.assert_close(model(ids), layer_norm(x, w["norm.weight"]) @ w["head.weight"].T)


@pytest.mark.slow
@pytest.mark.parametrize("label, positions, count", [
    ("cd:id-sm-bd-cg", "none", 110_458_304), ("cd:exp-sum", "learned", 106_377_984),
])  # fmt: skip
def test_the_wikitext_profile_has_the_parameters_of_table_3(label, positions, count):
    """The paper states 110M parameters for the first model, and for 8 layers of the second 14M fewer than it has."""
    profile = LanguageProfile.load("wikitext", [f"model.positions={positions}"])
    corpus = types.SimpleNamespace(digest="none", padded_vocab_size=50304)
    [job] = LANGUAGE.jobs([label], profile, corpus=corpus, budget="paper")
    assert LANGUAGE.size(job).parameters == count
    with torch.device("meta"):
        model = suite_of(job).Trial.build(job)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_the_state_dict_has_the_documented_names():
    names = {name for name in make(positions="learned").state_dict() if not name.startswith("blocks.1.")}
    block = {"mixer_norm", "mixer.q", "mixer.k", "mixer.v", "mixer.o", "mlp_norm", "mlp.up", "mlp.down"}
    assert names == {f"{part}.weight" for part in {"embedding", "positions", "norm"} | {f"blocks.0.{p}" for p in block}}


def test_the_softmax_label_at_the_papers_size_has_the_parameters_of_gpt2_without_positions():
    with torch.device("meta"):
        model = make("S", vocab_size=50304, d_model=768, n_layer=12, seq_len=1024, n_head=12, positions="learned")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 50304 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 2 * 768) + 768 == 124_373_760


@pytest.mark.parametrize("label", ["S", "G-cg-q-12o"])
def test_initial_weights_have_std_0_02_and_residual_ones_shrink_with_depth(label):
    model = make(label, vocab_size=64, d_model=64, n_layer=8, positions="learned")
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == 1).all(), name
        elif name.endswith((".bias", ".p")):
            assert (parameter == 0).all(), name
        else:
            std = 0.02 / 4 if name.endswith(("mixer.o.weight", "mlp.down.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(std, abs=4 * std / (2 * parameter.numel()) ** 0.5), name


def test_the_loss_is_the_mean_of_nats_in_float32_even_under_autocast():
    model, ids = make("R-12o!", vocab_size=64, d_model=32), tokens(vocab_size=64)
    targets = ids.flip(0)
    logits = model(ids).double()
    rows = [-logits[b, t].log_softmax(-1)[targets[b, t]] for b in range(3) for t in range(8)]
    assert TokenLoss(model)(ids, targets).item() == pytest.approx(torch.stack(rows).mean().item(), rel=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        loss = TokenLoss(model)(ids, targets)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(torch.stack(rows).mean().item(), rel=1e-2)


def test_norms_and_the_residual_stream_stay_float32_under_autocast():
    model, dtypes = make("G-cg-q-12o"), set()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(lambda module, inputs, output: dtypes.update((inputs[0].dtype, output.dtype)))
    with torch.autocast("cpu", torch.bfloat16):
        TokenLoss(model)(tokens(), tokens()).backward()
    assert dtypes == {torch.float32}
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("label", ["S", "R-12o!"])
def test_later_tokens_do_not_change_earlier_logits(label):
    model, ids = widen(make(label)), tokens()
    changed = ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] - before[:, 5:]).norm() > 1e-3


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("label", DECODABLE)
@torch.no_grad()
def test_steps_give_the_logits_of_the_whole_sequence(label, positions):
    model, ids = widen(make(label, positions=positions, d_model=32)), tokens()
    state, rows = None, []
    for column in ids.unbind(1):
        logits, state = model.decode(column[:, None], state)
        rows.append(logits)
    assert state.position == 8
    torch.testing.assert_close(torch.stack(rows, dim=1), model(ids), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("label", [*DECODABLE, "cd:exp-sum", "hfa:2"])
@torch.no_grad()
def test_a_prompt_read_at_once_gives_the_logits_and_state_of_single_steps(label, positions):
    model, ids = widen(make(label, positions=positions, d_model=32)), tokens()
    expected = model(ids)
    logits, state = model.decode(ids[:, :5])
    torch.testing.assert_close(logits, expected[:, 4], rtol=1e-10, atol=1e-10)
    for t in (5, 6, 7):
        assert state.position == t
        logits, state = model.decode(ids[:, t, None], state)
        torch.testing.assert_close(logits, expected[:, t], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@torch.no_grad()
def test_a_prompt_is_read_step_by_step_by_mixers_without_prefill(install_example):
    install_example("plugin")
    model, ids = widen(make("lin:elu-g", d_model=32)), tokens()
    assert not hasattr(model.blocks[0].mixer, "prefill")
    logits, state = model.decode(ids[:, :7])
    torch.testing.assert_close(logits, model(ids)[:, 6])
    torch.testing.assert_close(model.decode(ids[:, 7, None], state)[0], model(ids)[:, 7])


@pytest.mark.slow
@torch.no_grad()
def test_a_prompt_longer_than_the_context_equals_sliding_steps():
    for label in ("R-12o!", "G-cg-q-12o", "S-p", "hfa:2"):
        model, ids, state = widen(make(label, seq_len=4)), tokens(11), None
        for t in range(11):
            logits, state = model.decode(ids[:, t, None], state, slide=True)
            if t == 8:
                given, prompted = model.decode(ids[:, :9], slide=True)
                torch.testing.assert_close(given, logits)
        for t in (9, 10):
            given, prompted = model.decode(ids[:, t, None], prompted, slide=True)
        torch.testing.assert_close(given, logits)


@pytest.mark.parametrize("n_layer", [1, 2])
@torch.no_grad()
def test_a_sliding_step_sees_only_the_newest_seq_len_tokens(n_layer):
    model, ids, state = widen(make("R-12o!", n_layer=n_layer, seq_len=4)), tokens(9), None
    for column in ids.unbind(1):
        logits, state = model.decode(column[:, None], state, slide=True)
    torch.testing.assert_close(logits, model(ids[:, -4:])[:, -1])


def test_more_tokens_than_learned_positions_are_refused():
    model = make(positions="learned", seq_len=4)
    with pytest.raises(TrainingError, match="5 tokens, but the model learned positions for seq_len = 4"):
        model(tokens(5))
    with pytest.raises(TrainingError, match="5 tokens, but"):
        model.decode(tokens(5), slide=True)
    state = None
    for column in tokens(4).unbind(1):
        _, state = model.decode(column[:, None], state)
    with pytest.raises(TrainingError, match="5 tokens, but"):
        model.decode(column[:, None], state, slide=True)


def test_an_empty_prompt_is_refused():
    with pytest.raises(TrainingError, match="the prompt is empty"):
        make().decode(tokens(0))


def test_a_mixer_without_steps_cannot_decode():
    model = GPT(11, 16, 1, nn.Identity, seq_len=8)
    with pytest.raises(TrainingError, match="Identity has no 'step'"):
        model.decode(tokens()[:, :1])
    with pytest.raises(TrainingError, match="Identity has no 'step'"):
        model.decode(tokens())


def test_the_tied_embedding_gets_gradients_from_input_and_output():
    model, ids = widen(make()), tokens(batch=1)
    TokenLoss(model)(ids, ids).backward()
    table = model.embedding.weight.detach().clone().requires_grad_()
    x = F.embedding(ids, table)
    for block in model.blocks:
        x = block(x)
    F.cross_entropy((model.norm(x) @ table.T)[0], ids[0]).backward()
    torch.testing.assert_close(model.embedding.weight.grad, table.grad)


def test_llama_blocks_are_rms_norms_and_swiglus_around_the_mixer():
    torch.manual_seed(0)
    mixers = lambda: build("S", 16, 8, n_head=2)  # noqa: E731
    model, ids = widen(GPT(11, 16, 2, mixers, 8, mlp_width=24, mlp="swiglu", norm="rmsnorm")), tokens(length=6)
    w = model.state_dict()

    def rms_norm(x, name):
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w[f"{name}.weight"]

    x = w["embedding.weight"][ids]
    for n, block in enumerate(model.blocks):
        x = x + block.mixer(rms_norm(x, f"blocks.{n}.mixer_norm"))
        y = rms_norm(x, f"blocks.{n}.mlp_norm")
        gate, up = (y @ w[f"blocks.{n}.mlp.{name}.weight"].T for name in ("gate", "up"))
        x = x + (gate * torch.sigmoid(gate) * up) @ w[f"blocks.{n}.mlp.down.weight"].T
    torch.testing.assert_close(model(ids), rms_norm(x, "norm") @ w["embedding.weight"].T)


@pytest.mark.slow
@pytest.mark.parametrize("profile, parameters, billions, warm_up, label", [
    ("fineweb-340m", 341e6, 15, 1e9, "S-p"), ("fineweb-340m", 341e6, 15, 1e9, "G-cg-q-12o"),
    ("fineweb-1.3b", 1.3e9, 100, 1e9, "D-p"), ("fineweb-1.3b", 1.3e9, 100, 1e9, "R-c"),
])  # fmt: skip
def test_the_fineweb_profiles_are_the_recipe_of_table_2(profile, parameters, billions, warm_up, label):
    profile = LanguageProfile.load(profile)
    (job,) = LANGUAGE.jobs([label], profile, corpus=imagined_corpus(profile.vocab_size))
    size, training = LANGUAGE.size(job), job.training
    assert size.parameters == pytest.approx(parameters, rel=0.01)
    with torch.device("meta"):
        assert sum(p.numel() for p in LANGUAGE.Trial.build(job).parameters()) == size.parameters
    assert size.trained_tokens == pytest.approx(billions * 1e9, rel=1e-3)
    assert training.warmup_steps * training.tokens_per_step == pytest.approx(warm_up, rel=1e-3)
    assert (job.model.seq_len, training.learning_rate, training.weight_decay, training.grad_clip) == (
        4096, 4e-4, 0.1, 1.0,
    )  # fmt: skip
    assert training.tokens_per_step == pytest.approx(5e5, rel=0.05)
    assert (job.setting["vocab_size"], job.model.n_head) == (32000, 2)


def test_llama_blocks_change_the_job_id_and_the_default_is_not_part_of_it():
    (usual,) = LANGUAGE.jobs(["S"], LanguageProfile.load("tiny"), corpus=imagined_corpus(257))
    changed = LanguageProfile.load("tiny", ["model.norm=rmsnorm"])
    (other,) = LANGUAGE.jobs(["S"], changed, corpus=imagined_corpus(257))
    assert other.id != usual.id and "norm" not in identifying_fields(usual.model)


@pytest.mark.parametrize("label", ["S", "G-cg-q-12o"])
def test_a_tied_model_whose_embedding_is_zero_has_no_gradient(label):
    model = make(label, n_layer=1)
    with torch.no_grad():
        model.embedding.weight.zero_()
    F.cross_entropy(model(tokens()).flatten(0, 1), tokens().flatten()).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
