"""Arguments of a user's module in its label, its fit and its step."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import BudgetError, LabelError, TrainingError
from madbench.experiment import ExperimentOptions, prepare
from madbench.labels import differing_factors, expand, explain, family_of, parse, trust
from madbench.labels.parsing import label_identity
from madbench.labels.trust import importable_labels
from madbench.mixers import build, label_traits, solve
from madbench.mixers.checks import run_check
from madbench.mixers.checks.residuals import decode_tokens, difference
from madbench.mixers.my.measures import stated
from madbench.rows import Grid, Row

MODULE = """
import torch
from torch import nn


class Ema(nn.Module):
    def __init__(self, d_model, beta=0.5, hidden=0, mode="plain"):
        super().__init__()
        hidden = hidden or d_model
        self.beta, self.mode = float(beta), mode
        self.inner, self.out = nn.Linear(d_model, hidden), nn.Linear(hidden, d_model)

    @classmethod
    def fit(cls, d_model, n_head, max_len, budget):
        return {"hidden": (budget - d_model) // (2 * d_model + 1)}

    def step(self, x, state):
        new = self.inner(x)
        state = new if state is None else self.beta * state + new
        return self.out(torch.tanh(state)), state

    def forward(self, x):
        rows, state = [], None
        for token in x.unbind(1):
            y, state = self.step(token, state)
            rows.append(y)
        return torch.stack(rows, 1)


class ByFlops(Ema):
    @classmethod
    def fit(cls, d_model, n_head, max_len, budget, match="parameters"):
        return {"hidden": (budget - d_model) // (4 * d_model + 4) if match == "flops" else budget}

    def state(self, seq_len):
        return self.inner.out_features


class Needy(nn.Module):
    def __init__(self, d_model, hidden, rank=1):
        super().__init__()
        self.inner, self.out = nn.Linear(d_model, hidden, bias=False), nn.Linear(hidden, d_model, bias=False)
        self.scale = nn.Parameter(torch.ones(rank))

    @classmethod
    def fit(cls, d_model, n_head, max_len, budget):
        return {"hidden": budget // (2 * d_model) - 1, "rank": 2 * d_model}

    def forward(self, x):
        return self.out(self.inner(x) * self.scale.mean())


class Wide(nn.Module):
    def __init__(self, d_model, width):
        super().__init__()
        self.a, self.b = nn.Linear(d_model, width * d_model), nn.Linear(width * d_model, d_model)

    def forward(self, x):
        return self.b(self.a(x))
"""


ODD_MODULES = """
from torch import nn


class Odd(nn.Module):
    def __init__(self, d_model, **kwargs):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x)


class Properties(Odd):
    fit = property(lambda self: 1)

    @property
    def step(self):
        raise RuntimeError


class OtherMethods(Odd):
    def fit(self, data):
        raise RuntimeError

    def step(self):
        raise RuntimeError


class Part(Odd):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.step = nn.Linear(d_model, d_model)


class NoPair(Odd):
    def step(self, x, state):
        return x


class Keeps(Odd):
    def step(self, x, state):
        rows = [*(state["rows"] if state else ()), x, x, x]
        return x, {"rows": rows, "window": rows[-4:]}


class Sums(Odd):
    def step(self, x, state):
        return x, x if state is None else x + state


class States(Sums):
    def state(self, seq_len):
        return self.out.in_features

    def flops_per_token(self, seq_len):
        return {4: 10, 5: -1, 6: float("nan"), 7: True, 8: "9"}.get(seq_len, 1 / 0 if seq_len == 9 else 0.5)


class OtherStates(Sums):
    state = 3

    def flops_per_token(self):
        raise RuntimeError


class HalfStates(Sums):
    def state(self, seq_len):
        return seq_len / 2


class Unnamed(Odd):
    def __init__(self, d_model, /):
        super().__init__(d_model)


class Fits(Odd):
    @classmethod
    def fit(cls, d_model, n_head, max_len, budget):
        if budget < 100:
            raise ValueError("too small")
        return {"hidden": 8}
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """The prefix of labels of the classes of ``ODD_MODULES``."""
    name = f"odd_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(ODD_MODULES)
    monkeypatch.chdir(tmp_path)
    return f"my:{name}."


@pytest.mark.parametrize("cls", ["Properties", "OtherMethods", "Part"])
def test_unrelated_attributes_named_step_or_fit_are_ignored(odd, cls):
    trust.allow([f"{odd}{cls}"])
    texts = [row.what for row in explain(parse(f"{odd}{cls}"))]
    assert any("No rank is chosen" in text for text in texts) and any("all tokens again" in text for text in texts)
    assert build(f"{odd}{cls}", 8, 4).step(torch.zeros(2, 8))[1].shape == (2, 1, 8)


@pytest.mark.parametrize("cls, kept", [("Odd", 1), ("Part", 1), ("NoPair", 1), ("Keeps", 3), ("Sums", 0)])
def test_the_growth_of_a_step_s_state_is_measured(odd, cls, kept):
    trust.allow([f"{odd}{cls}"])
    assert solve(f"{odd}{cls}", 8, 2, 4).state_bytes_per_token(2) == kept * 8 * 2


def test_errors_on_wrong_steps_arguments_and_fits_are_described(odd):
    trust.allow([f"{odd}{cls}" for cls in ("NoPair", "Unnamed", "Fits")])
    with pytest.raises(TrainingError, match=r"must return \(y, state\), got Tensor"):
        build(f"{odd}NoPair", 8, 4).step(torch.zeros(2, 8))
    with pytest.raises(BudgetError, match="must take 'd_model' by name"):
        solve(f"{odd}Unnamed", 8, 2, 4)
    assert not label_traits(parse(f"{odd}Fits")).has_heads and solve(f"{odd}Fits", 8, 2, 4).ratio < 1


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a file of modules in the working folder."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    "typed, canonical",
    [
        ("(beta=2)", "(beta=2)"),
        ("(mode=fast, beta=1e-1)", "(beta=0.1,mode=fast)"),
        ("(hidden=8,beta=true)", "(beta=true,hidden=8)"),
        ("()", ""),
        ("(mode=None)", "(mode=null)"),
    ],
)
def test_arguments_have_one_canonical_spelling(typed, canonical):
    assert str(parse(f"my:some.Mixer{typed}")) == f"my:some.Mixer{canonical}"


@pytest.mark.parametrize(
    "text, at",
    [("my:a.B(x=1", 6), ("my:a.B(x)", 7), ("my:a.B(x=1,x=2)", 11), ("my:a.B(x=[1])", 7), ("my:a.B(x=1)y", 6)],
)
def test_wrong_arguments_are_pointed_at(text, at):
    with pytest.raises(LabelError) as error:
        parse(text)
    first, second = str(error.value).splitlines()
    assert second.index("^") == first.index(text) + at


@pytest.mark.parametrize("value", ["...", ".inf", "-.inf", ".nan", "1e999", "2024-13-45", "9" * 5000, "-", "!!x"])
def test_texts_that_are_not_values_are_refused(value):
    with pytest.raises(LabelError, match="a finite number, true, false, null or a word"):
        parse(f"my:a.B(x={value})")


def test_brace_expansion_keeps_commas_between_arguments():
    assert expand(["my:a.B(x={0,1},y=2)"]) == ["my:a.B(x=0,y=2)", "my:a.B(x=1,y=2)"]
    assert expand(["{my:a.B(x=1,y=2),S}"]) == ["my:a.B(x=1,y=2)", "S"]
    assert differing_factors(parse("my:a.B(x=1)"), parse("my:a.B(x=2)")) == ("arguments",)


@pytest.mark.slow
def test_arguments_reach_the_module_and_are_checked(module):
    mixer = build(f"my:{module}.Ema(beta=0.25,mode=fast)", 16, 8)
    assert (mixer.module.beta, mixer.module.mode) == (0.25, "fast")
    for argument, why in (("gamma=1", "its arguments: beta, hidden, mode"), ("d_model=8", "is set by the model")):
        with pytest.raises(BudgetError, match=why):
            build(f"my:{module}.Ema({argument})", 16, 8)
        with pytest.raises(BudgetError, match=why):
            explain(parse(f"my:{module}.Ema({argument})"))
    with pytest.raises(BudgetError, match=rf"my:{module}\.Wide\(width=\.\.\.\)"):
        build(f"my:{module}.Wide", 16, 8)


ANNOTATED_MODULE = """
{future}
from torch import nn


class Typed(nn.Module):
    def __init__(self, d_model, beta: float = 1.0, k: int = 1, is_deep: bool = False, mode: str = "a",
                 cut: int | None = 3, rank: int = None, other: list = ()):
        super().__init__()
        raise RuntimeError("built")
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_a_value_that_the_annotation_excludes_is_an_error_before_the_module_is_built(tmp_path, monkeypatch, future):
    name = f"typed{len(future)}_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(ANNOTATED_MODULE.format(future=future))
    monkeypatch.chdir(tmp_path)

    def error(arguments):
        with pytest.raises(BudgetError) as raised:
            build(f"my:{name}.Typed({arguments})", 16, 8)
        return str(raised.value)

    for wrong, signature, expected in (
        ("beta=fast", "beta: float", "a number"),
        ("beta=true", "beta: float", "a number"),
        ("k=2.5", "k: int", "a whole number"),
        ("k=true", "k: int", "a whole number"),
        ("is_deep=1", "is_deep: bool", "true or false"),
        ("mode=3", "mode: str", "a word"),
        ("cut=x", "cut: int | None", "a whole number or null"),
        ("beta=null", "beta: float", "a number"),
    ):
        assert error(wrong) == f"Typed({wrong}): its signature has '{signature}'; expected {expected}"
    for right in ("beta=2", "beta=0.5", "k=2", "is_deep=true", "mode=b", "cut=2", "cut=null", "rank=null", "other=3"):
        assert error(right).endswith("RuntimeError: built"), right


@pytest.mark.slow
def test_the_code_of_a_module_does_not_depend_on_its_arguments(module):
    labels = [f"my:{module}.Ema(beta={value})" for value in (1, 2)]
    assert {label: build(label, 16, 8).module.beta for label in labels} == dict(zip(labels, (1.0, 2.0)))
    assert label_identity(labels[0]) == label_identity(labels[1])


@pytest.mark.slow
def test_fit_chooses_arguments_for_the_budget_unless_the_label_gives_them(module):
    label = f"my:{module}.Ema"
    assert 0.97 < build(label, 64, 8).allocation.ratio <= 1
    assert solve(label, 64, 2, 8).ratio == build(label, 64, 8).allocation.ratio
    assert build(f"{label}(hidden=5)", 64, 8).module.inner.out_features == 5
    assert build(label, 64, 8, budget="paper").module.inner.out_features == 64


def test_under_the_paper_s_budget_fit_chooses_arguments_that_have_no_default(module):
    label = f"my:{module}.Needy"
    trust.allow([label, f"{label}(hidden=5)"])
    assert solve(label, 16, 2, 8, "paper").total == solve(label, 16, 2, 8).total == 4 * 16**2
    assert solve(f"{label}(hidden=5)", 16, 2, 8, "paper").total == 2 * 16 * 5 + 1, "only the label's argument, rank 1"


@pytest.mark.slow
def test_fit_matches_flops_if_it_takes_the_quantity(module):
    mixer = build(f"my:{module}.ByFlops", 64, 32, budget="flops")
    assert mixer.module.inner.out_features == (8 * 64**2 + 2 * 64 * 33 - 64) // (4 * 64 + 4)
    assert 0.98 < mixer.allocation.flops_per_token(32) / (8 * 64**2 + 2 * 64 * 33) <= 1
    assert solve(f"my:{module}.ByFlops", 64, 2, 32, "state").state(32) == 2 * 64 * 32
    with pytest.raises(BudgetError, match="its fit matches parameters only; write a classmethod Ema.fit"):
        build(f"my:{module}.Ema", 64, 32, budget="flops")
    with pytest.raises(BudgetError, match="it has no fit; write a classmethod Wide.fit"):
        build(f"my:{module}.Wide(width=3)", 64, 32, budget="flops")


@pytest.mark.slow
def test_the_module_s_own_step_decodes(module):
    mixer = build(f"my:{module}.Ema", 16, 8).double().requires_grad_(False)
    x = torch.randn(2, 8, 16, dtype=torch.float64)
    assert difference(decode_tokens(mixer, x), mixer(x)) < 1e-12
    rows, state = mixer.prefill(x[:, :5])
    assert difference(rows, mixer(x)[:, :5]) < 1e-12 and state.shape == (2, mixer.module.inner.out_features)


@pytest.mark.slow
def test_a_run_warns_before_training_that_a_module_is_not_matched(module):
    for label in (f"my:{module}.Wide(width=3)", f"my:{module}.Ema"):  # named by the user, so their code may be imported
        build(label, 16, 8)
    labels = [f"my:{module}.Wide(width=3)", f"my:{module}.Ema", "S"]
    experiment = prepare(
        Grid(tuple(map(Row, labels)), ("compression",)), ExperimentOptions(device="cpu", results="results")
    )
    (note,) = [note for note in experiment.notes if "times the parameters" in note]
    assert f"my:{module}.Wide(width=3) has 1.5" in note and "fit(cls, d_model, n_head, max_len, budget)" in note


def test_workers_import_modules_that_are_part_of_hybrids():
    labels = ["2xKDA/my:madbench.mixers.my.sample.GatedMean", "S"]
    assert importable_labels(labels) == ("my:madbench.mixers.my.sample.GatedMean",)
    assert importable_labels(["my:os.path.join", "nofamily:x"]) == ()


def test_the_stated_state_of_a_module_must_be_a_whole_number(odd):
    trust.allow([f"{odd}{cls}" for cls in ("States", "OtherStates", "HalfStates")])
    assert solve(f"{odd}States", 8, 2, 4).state(100) == 8
    assert solve(f"{odd}HalfStates", 8, 2, 4).state(6) == 3
    with pytest.raises(BudgetError, match=r"its state\(5\) must be a whole number, got 2.5"):
        solve(f"{odd}HalfStates", 8, 2, 4).state(5)
    with pytest.raises(BudgetError, match=r"OtherStates does not state what decoding carries .*state\(seq_len\)"):
        solve(f"{odd}OtherStates", 8, 2, 4).state(4)


def test_flops_that_a_module_states_must_be_finite_numbers(odd):
    trust.allow([f"{odd}States"])
    size = solve(f"{odd}States", 8, 2, 4).size
    path = f"{odd}States".removeprefix("my:")
    assert [stated(path, size, "flops_per_token", length) for length in (4, 10)] == [10, 0.5]
    for length, got in ((5, "-1"), (6, "nan"), (7, "True"), (8, "'9'")):
        with pytest.raises(
            BudgetError, match=rf"its flops_per_token\({length}\) must be a finite number >= 0, got {got}"
        ):
            stated(path, size, "flops_per_token", length)
    with pytest.raises(BudgetError, match="States: its flops_per_token: ZeroDivisionError"):
        stated(path, size, "flops_per_token", 9)


@pytest.mark.slow
def test_verify_compares_a_stated_state_with_the_step(odd):
    trust.allow([f"{odd}{cls}" for cls in ("States", "HalfStates", "Sums")])

    def verdicts(cls):
        label = parse(f"{odd}{cls}")
        return [run_check(check).verdict for check in family_of(label).checks(label) if check.name == "state"]

    assert verdicts("States") == ["pass"] and verdicts("HalfStates") == ["fail"]
    assert verdicts("Sums") == [], "it states nothing"
