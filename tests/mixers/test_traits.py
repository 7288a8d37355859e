"""Traits of a mixer come from its family or are measured. They do not depend on the names of its parameters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from madbench.errors import ConfigError, FamilyError, TrainingError
from madbench.labels import family_of
from madbench.mixers import Traits, build
from madbench.mixers.traits import attach, output_names, traits_of
from madbench.models.blocks import Backbone, embedding
from madbench.models.gpt import GPT
from madbench.training.optimizer import decaying_parameters, make_optimizer, parameter_groups

D, LAYERS = 12, 8
LABELS = (
    "S", "S-p", "D-pcgk-q", "R-cg-q-12o", "G-12!", "S-pcgka-v", "cd:exp-sum-p", "cd:id-smhk1-bwn-u", "cd:mlstm-c",
    "cd:id-1.05-pow-g", "hfa:2w-p-q", "hfa:L1+2-p", "ha:3us-p-q", "ha:L3",
)  # fmt: skip


class Plain(nn.Module):
    """Linear attention without a family, whose weights have the names and the kinds of the arguments."""

    def __init__(self, out: str = "out_proj", kind: str = "linear"):
        super().__init__()
        self.kind, self.out = kind, out
        self.query, self.value = nn.Linear(D, 2 * D, bias=False), nn.Linear(D, 2 * D, bias=False)
        if kind == "raw":
            setattr(self, out, nn.Parameter(torch.empty(2 * D, D)))
        else:
            setattr(self, out, nn.Linear(2 * D, D, bias=kind == "biased"))
        self.gate = nn.Linear(D, D)  # comes last, with D outputs, and ends in no residual stream
        self.norm = nn.LayerNorm(D) if kind == "normed" else nn.Identity()
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)
        if kind == "zero":
            nn.init.zeros_(self.last)

    @property
    def last(self) -> nn.Parameter:
        found = getattr(self, self.out)
        return found if self.kind == "raw" else found.weight

    def forward(self, x):
        q, v = self.query(x), self.value(x)
        mixed = (q @ q.mT).tril() @ v
        y = mixed @ self.last if self.kind == "raw" else getattr(self, self.out)(mixed)
        return self.norm(y * torch.sigmoid(self.gate(x)))


def start(make_mixer, n_layer: int = LAYERS) -> GPT:
    torch.manual_seed(0)
    return GPT(11, D, n_layer, make_mixer, seq_len=8)


@pytest.mark.parametrize("out", ["o", "out_proj", "c_proj", "w2"])
@pytest.mark.parametrize("kind", ["linear", "biased", "raw"])
def test_a_deep_model_scales_only_the_output_map_down_for_any_name_of_it(out, kind):
    mixer = start(lambda: Plain(out, kind)).blocks[3].mixer
    for name, parameter in mixer.named_parameters():
        if parameter.ndim == 2:
            expected = 0.02 / (2 * LAYERS) ** 0.5 if parameter is mixer.last else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.2), name


def test_an_output_map_that_starts_at_zero_is_found():
    mixer = Plain(kind="zero")
    assert output_names(mixer, D) == ["out_proj.weight"]


def test_the_output_map_of_a_mixer_that_does_not_show_it_has_to_be_named():
    with pytest.raises(TrainingError, match=r"Plain: which .* residual stream does not show; its family must state it"):
        start(lambda: Plain(kind="normed"))
    told = start(lambda: attach(Plain(kind="normed"), Traits(outputs=()), "mine:x")).blocks[0].mixer
    assert told.last.std().item() == pytest.approx(0.02, rel=0.2)


def test_the_output_map_of_a_mixer_that_fails_while_it_is_measured_has_to_be_named():
    class Single(Plain):
        def forward(self, x):
            return super().forward(torch.eye(x.shape[1]) @ x)

    with pytest.raises(TrainingError, match=r"Single: .* fails \(RuntimeError: .*Double\); its family must state it"):
        start(Single)
    assert start(lambda: attach(Single(), Traits(outputs=("out_proj.weight",)), "mine:x"))


def test_output_maps_that_a_family_names_are_not_measured():
    mixer = start(lambda: attach(Plain(), Traits(outputs=("value",)), "mine:x")).blocks[0].mixer
    assert mixer.value.weight.std().item() == pytest.approx(0.005, rel=0.2)
    assert mixer.last.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("label", [label for label in LABELS if "a" not in label.split(":")[-1]])
def test_output_maps_named_by_built_in_families_equal_the_measured_ones(label):
    torch.manual_seed(0)
    mixer = build(label, 16, 8, budget="paper")
    said = output_names(mixer, 16)
    assert len(said) == 1
    mixer.traits = None
    assert output_names(mixer, 16) == said


@pytest.mark.parametrize("label", LABELS)
def test_a_deep_model_changes_initial_weights_only_by_the_scale_of_o(label):
    def make():
        return build(label, 16, 8, budget="paper")

    torch.manual_seed(0)
    given = dict(GPT(11, 16, 3, make, seq_len=8).blocks[0].mixer.named_parameters())
    torch.manual_seed(0)
    embedding(11, 16)  # is drawn before the first mixer
    for name, parameter in make().named_parameters():
        scale = 6**-0.5 if name == "o.weight" else 1
        assert torch.equal(given[name], parameter * scale), name


@pytest.mark.parametrize(("kind", "name"), [("outputs", "o"), ("without_decay", "last.p"), ("keeps_init", "out_prj")])
def test_a_trait_that_names_a_missing_parameter_is_refused(kind, name):
    with pytest.raises(ConfigError, match=f"traits of 'mine:x': {kind}: its mixer has no parameter '{name}'"):
        attach(Plain(), Traits(**{kind: (name,)}), "mine:x")


@pytest.mark.parametrize(
    ("traits", "name"),
    [
        (Traits(may_grow=True), "coefficients"),
        (Traits(stacked_path="dense"), "path"),
        (Traits(is_stackable=True), "resolve_path"),
    ],
)
def test_a_trait_that_requires_a_missing_member_is_refused(traits, name):
    with pytest.raises(ConfigError, match=f".*: its mixer has no '{name}', which the trait requires"):
        attach(Plain(), traits, "mine:x")
    mixer = Plain()
    setattr(mixer, name, None)
    assert traits_of(attach(mixer, traits, "mine:x")) == traits


@pytest.mark.parametrize("kind", ["outputs", "without_decay", "keeps_init", "settings", "start_settings"])
@pytest.mark.parametrize("value", ["o.weight", (1,), [nn.Linear(1, 1)]])
def test_trait_values_that_are_no_tuples_of_names_are_refused(kind, value):
    with pytest.raises(ConfigError, match=f"traits: {kind}: expected names, such as .*, got"):
        Traits(**{kind: value})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("traits", "says"),
    [
        (Traits(settings=("esp",)), "its family has no setting 'esp'; did you mean 'eps'"),
        (Traits(start_settings=("std",)), "its family has no setting 'std'"),
        (None, "expected madbench.mixers.Traits, got NoneType"),
    ],
)
def test_traits_of_another_kind_or_of_unknown_settings_are_refused(install_example, monkeypatch, traits, says):
    install_example("plugin")
    monkeypatch.setattr(family_of("lin:elu"), "traits", lambda label: traits)
    with pytest.raises(FamilyError, match=f"traits of 'lin:elu': {says}"):
        build("lin:elu", 16, 8)


class Named(nn.Module):
    """A mixer with a matrix that is called p, like the diagonals of S/R/G."""

    def __init__(self):
        super().__init__()
        self.mix1 = nn.ParameterDict({"p": nn.Parameter(torch.ones(D, D))})

    def forward(self, x):
        return x @ self.mix1["p"]


@pytest.mark.parametrize(("traits", "decays"), [(Traits(), True), (Traits(without_decay=("mix1.p",)), False)])
def test_a_matrix_of_any_name_decays_unless_its_family_excludes_it(traits, decays):
    for mixer in (Named(), attach(Named(), traits, "mine:x")):
        model = Backbone(11, D, 1, lambda mixer=mixer: mixer)
        expected = decays or traits_of(mixer) != traits
        assert ("layers.0.mix1.p" in decaying_parameters(model)) is expected
        assert "layers.0.mix1.p" in decaying_parameters(model, "published")
        config = SimpleNamespace(optimizer="adamw", learning_rate=0.1, weight_decay=0.5, betas=(0.9, 0.99))
        group = make_optimizer(model, config).param_groups[0]["params"]
        assert any(one is mixer.mix1["p"] for one in group) is expected


def test_traits_of_a_family_decide_the_group_of_a_parameter_not_its_name():
    class Gated(Plain):
        def __init__(self):
            super().__init__()
            self.qk_gate, self.out_norm = nn.Linear(D, D), nn.LayerNorm(D)

    def groups(traits):
        """The number of tensors by parameter group, of the mixer alone.

        The model adds three norms of one tensor and no gates.
        """
        rows = parameter_groups(start(lambda: attach(Gated(), traits, "mine:x"), 1))
        found = dict.fromkeys(("mixer projections", "mixer gates", "norms"), 0)
        for row in rows:
            if row["group"] in found:
                found[row["group"]] += row["tensors"]
        return found | {"norms": found["norms"] - 3}

    assert groups(Traits(outputs=())) == {"mixer projections": 9, "mixer gates": 0, "norms": 0}
    named = {"qk_gate": "mixer gates", "out_norm": "norms"}
    assert groups(Traits(outputs=(), groups=named)) == {"mixer projections": 5, "mixer gates": 2, "norms": 2}
