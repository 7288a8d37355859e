"""Properties of every mixer as a torch module: copies, dtypes, transforms and programs, for every family and path.

Labels of the families of installed packages are tested like those of built-in ones.
"""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import pickle

import pytest
import torch
from torch.func import functional_call, grad, vmap

from madbench.errors import BudgetError, TrainingError
from madbench.labels import families, family_of
from madbench.mixers import build, state_size, used_settings
from madbench.mixers.decoding import held_numbers
from madbench.mixers.named.operators import OPERATORS

WIDTH = 16
LABELS = {
    "": ("S-p", "R-12!", "R-cg-12o!", "G-cgka-q-12o"),
    "cd": ("cd:softmax", "cd:mlstm", "cd:gateddeltanet-c", "cd:softplus-sum-p", "cd:kexp-ss-sum"),
    "hfa": ("hfa:2w-p-q", "hfa:L2w-p-q", "hfa:C1+2"),
    "ha": ("ha:2+3us-p-q", "ha:4a", "ha:L3ua-p-q", "ha:C3s"),
    "named": ("KDA", "GDN(neg)", "Mamba-2"),
    "my": ("my:mean",),
}
"""Labels by family, with most of its letters. For a family that is not listed, its first three labels are tested."""
SLOW_LABELS = {
    "": ("D-p", "S-12o!", "S-v-2", "G-pcg-q-12", "R-a-q-1o", "G-c-12o!", "S-pwsn", "R-kw-q-12o", "D-pkmhe-q"),
    "cd": (
        "cd:linear",
        "cd:gla",
        "cd:mamba2",
        "cd:relu-sm-bd",
        "cd:exp-0.95hk1-pow-g",
        "cd:id-dmhz2-b1-wx",
        "cd:elu-se",
    ),
    "hfa": ("hfa:1+2", "hfa:3-q", "hfa:L2", "hfa:C2w", "hfa:C3"),
    "ha": ("ha:3", "ha:3s-p", "ha:5s", "ha:L2+4s", "ha:L3u!", "ha:C3a", "ha:C4"),
    "named": tuple(name for name in OPERATORS if name not in ("KDA", "GDN", "Mamba-2")),
}
"""Labels that are tested only with ``--slow``."""
EXPORTED = {"R-cg-12o!", "KDA", "cd:gateddeltanet-c", "cd:mlstm", "hfa:L2w-p-q", "ha:2+3us-p-q"}
COMPILED = {"S-p", "cd:softmax", "hfa:L2w-p-q", "ha:C3s"}
"""Labels that are always exported or compiled. Of the other labels, every sixth is."""
SHAPES = ((2, 1), (2, 5), (2, 40), (2, 70), (8, 48), (16, 64))
"""Pairs of batch and length. A mixer is tested at the first pair for which it chooses each of its paths."""
MOST_TUPLES = 2**20  # of the rows of a batch: beyond, a degree is too high for a length
ROWS_PER_BLOCK = 8
"""The number of rows of a block, for mixers with a named path."""
UNTESTED_PATHS = ("auto", "reference", "sdpa", "tiled", "fused", "fla")
"""Paths without rules for transforms, which auto does not choose under a transform, and the loops."""


def label_parameters(quick=None):
    """Every label as a parameter of a test. It is marked slow unless it is in ``LABELS``, or in ``quick`` if given."""
    for name in families():
        if name == "hybrid":  # its labels name a mixer per layer, each of which is tested as a label of its own
            continue
        family = family_of(f"{name}:" if name else "S")
        usual = LABELS.get(name) or [str(label) for label in itertools.islice(family.labels(), 3)]
        for label in (*usual, *SLOW_LABELS.get(name, ())):
            is_slow = label not in (usual if quick is None else quick)
            yield pytest.param(label, marks=[pytest.mark.slow] if is_slow else [])


def labels_to_trace(quick, first):
    """The labels of ``quick``, and every sixth of the others from index ``first``. Without ha:5s, which takes 25 s."""
    every = [one for one in label_parameters(quick) if one.values != ("ha:5s",)]
    others = [one for one in every if one.values[0] not in quick]
    return [one for one in every if one.values[0] in quick or one in others[first::6]]


every_label = pytest.mark.parametrize("label", list(label_parameters()))
every_label_with_a_reset = pytest.mark.parametrize(
    "label", [one for one in label_parameters() if one.values[0] != "my:mean"]
)
"""Labels of families whose mixers have ``reset_parameters``. A module of a user is built again instead."""


def build_mixer(label, length, **how):
    torch.manual_seed(0)
    mixer = build(label, WIDTH, length, n_head=2, budget="paper", **how)
    if "path" in how and hasattr(mixer, "chunk"):
        mixer.chunk = ROWS_PER_BLOCK
    return mixer


def mixer_with_visible_weights(label, length, std=0.2, **how):
    """The mixer of a label in float64, with random weights of a size at which every parameter changes the output."""
    mixer, generator = build_mixer(label, length, **how).double(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=std, generator=generator)
    return mixer


def random_normal(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shapes_for_each_path(label):
    """The first pair of batch and length in ``SHAPES`` for each path that the mixer chooses by itself."""
    found = {}
    for batch, length in SHAPES:
        if batch * length ** getattr(family_of(label).parse(label), "degree", 2) > MOST_TUPLES:
            continue
        mixer = build_mixer(label, length)
        path = mixer.resolve_path(batch, length) if hasattr(mixer, "resolve_path") else ""
        found.setdefault(path, (batch, length))
        found.setdefault("row", (batch, length))
    return sorted(set(found.values()))


def shapes_and_paths(label):
    """Tuples (batch, length, arguments): shapes without arguments, then a shape for each path that must be named."""
    yield from ((*shape, {}) for shape in shapes_for_each_path(label))
    for path in getattr(build_mixer(label, 5), "paths", ()):
        if path not in UNTESTED_PATHS:
            try:
                build_mixer(label, 5, path=path)
            except TrainingError:
                continue
            yield 2, 40 if family_of(label).name != "ha" else 9, {"path": path}


def gradients(mixer, x, weight):
    """The gradients of <output, weight>, by parameter."""
    found = torch.autograd.grad((mixer(x) * weight).sum(), list(mixer.parameters()), materialize_grads=True)
    return dict(zip(dict(mixer.named_parameters()), found))


def second_derivatives(mixer, x, direction):
    """The derivatives of the squared output along a direction of x, then by x and by each parameter."""
    variables, how = (x.requires_grad_(), *mixer.parameters()), {"materialize_grads": True}
    (first,) = torch.autograd.grad(mixer(x).square().sum(), (x,), create_graph=True, **how)
    return dict(enumerate(torch.autograd.grad((first * direction).sum(), variables, **how)))


def assert_equal(given, expected, what, tolerance=1e-9):
    """Assert that errors are small in norm, relative to the largest of the expected tensors."""
    largest = max(float(tensor.detach().norm()) for tensor in expected.values())
    for name, tensor in expected.items():
        error = float((given[name] - tensor).detach().norm())
        assert error <= tolerance * max(largest, 1e-30), (what, name, error, largest)


@pytest.mark.slow
@every_label
def test_a_state_dict_and_copies_hold_the_whole_mixer(label):
    mixer = build_mixer(label, 5)
    with torch.no_grad():
        for parameter in mixer.parameters():
            if not parameter.any():
                parameter.normal_()  # an output that starts at zero would hide all else
    x = torch.randn(2, 5, WIDTH)
    expected = mixer(x)
    expected.sum().backward()
    torch.manual_seed(1)
    other = build(label, WIDTH, 5, n_head=2, budget="paper")
    assert not torch.equal(other(x), expected)
    other.load_state_dict(mixer.state_dict(), strict=True)
    saved = io.BytesIO()
    torch.save(mixer, saved)
    saved.seek(0)
    copies = [other, copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer)), torch.load(saved, weights_only=False)]
    assert all(torch.equal(each(x), expected) for each in copies)


@pytest.mark.slow
@every_label
def test_a_mixer_converted_to_another_dtype_computes_the_same_function(label):
    for batch, length in [
        shape for shape in shapes_for_each_path(label) if shape[1] < 100
    ]:  # beyond, some grow out of 16 bits
        mixer, x = mixer_with_visible_weights(label, length, std=0.1), random_normal(batch, length, WIDTH)
        expected = mixer(x).detach()
        for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 0.2), (torch.float16, 0.05)):
            narrow = copy.deepcopy(mixer).to(dtype)
            y = narrow(x.to(dtype).requires_grad_())
            y.float().mean().backward()
            assert y.dtype == dtype
            error = float((y.detach().double() - expected).norm() / expected.norm().clamp(min=1e-30))
            assert error < tolerance, (batch, length, dtype)
            assert all(each.grad is None or each.grad.isfinite().all() for each in narrow.parameters())


@every_label
def test_a_mixer_built_on_meta_gives_the_shape_of_its_output(label):
    with torch.device("meta"):
        mixer, x = build_mixer(label, 5), torch.empty(3, 5, WIDTH)
    assert mixer(x).shape == (3, 5, WIDTH)


@every_label_with_a_reset
def test_a_mixer_built_on_meta_starts_from_a_seed_as_one_built_directly(label):
    with torch.device("meta"):
        mixer = build_mixer(label, 5)
    assert all(parameter.is_meta for parameter in mixer.parameters())
    mixer.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*mixer.parameters(), *mixer.buffers()):
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
    torch.manual_seed(0)
    mixer.reset_parameters()
    direct, x = build_mixer(label, 5), torch.randn(2, 5, WIDTH)
    for name, parameter in direct.named_parameters():
        assert torch.equal(mixer.get_parameter(name), parameter), name
    assert torch.equal(mixer(x), direct(x))


@pytest.mark.slow
@every_label
def test_an_empty_batch_has_an_empty_output_and_gradients_of_zero(label):
    for _, length, how in shapes_and_paths(label):
        mixer, x = build_mixer(label, length, **how), torch.empty(0, length, WIDTH, requires_grad=True)
        y = mixer(x)
        assert y.shape == (0, length, WIDTH)
        found = torch.autograd.grad(y.sum(), (x, *mixer.parameters()), materialize_grads=True)
        assert not any(gradient.any() for gradient in found)


@every_label
def test_inputs_of_another_rank_or_of_integers_are_refused(label):
    """Otherwise a dimension of heads would be read as a batch, and an integer output would be truncated."""
    mixer = build_mixer(label, 5)
    for x in (torch.ones(5, WIDTH), torch.ones(1, 2, 5, WIDTH), torch.ones(1, 5, WIDTH, dtype=torch.int64)):
        with pytest.raises(TrainingError, match=r"expected \(B, T, D\) of floating-point numbers, got"):
            mixer(x)


@every_label
def test_inputs_of_another_width_are_refused_by_every_call(label):
    mixer, wrong = build_mixer(label, 5), WIDTH + 1
    calls = [(mixer, torch.ones(2, 5, wrong))]
    calls += [(mixer.prefill, torch.ones(2, 5, wrong))] if hasattr(mixer, "prefill") else []
    calls += [(mixer.step, torch.ones(2, wrong))] if hasattr(mixer, "step") else []
    for call, x in calls:
        with pytest.raises(TrainingError, match=f"tokens of width {wrong}, but the mixer was built for width {WIDTH}$"):
            call(x)


@pytest.mark.slow
@every_label
def test_torch_func_gradients_equal_backward(label):
    for batch, length, how in shapes_and_paths(label):
        mixer, x, weight = (
            mixer_with_visible_weights(label, length, **how),
            random_normal(batch, length, WIDTH),
            random_normal(batch, length, WIDTH, seed=3),
        )

        def value(parameters, mixer=mixer, x=x, weight=weight):
            return (functional_call(mixer, parameters, (x,)) * weight).sum()

        found = grad(value)(dict(mixer.named_parameters()))
        assert_equal(found, gradients(mixer, x, weight), (batch, length, how))


@pytest.mark.slow
@every_label
def test_vmap_outputs_and_per_sample_gradients_equal_single_samples(label):
    for batch, length, how in shapes_and_paths(label):
        mixer, x = mixer_with_visible_weights(label, length, **how), random_normal(2, min(batch, 2), length, WIDTH)
        outputs = dict(enumerate(vmap(mixer)(x)))
        assert_equal(outputs, {i: mixer(each) for i, each in enumerate(x)}, (batch, length, how))

        def value(parameters, sample, mixer=mixer):
            return functional_call(mixer, parameters, (sample[None],)).square().sum()

        samples, parameters = x[0], {name: each.detach() for name, each in mixer.named_parameters()}
        found = vmap(grad(value), (None, 0))(parameters, samples)
        for i, sample in enumerate(samples):
            expected = gradients(mixer, sample[None], 2 * mixer(sample[None]).detach())
            assert_equal({name: each[i] for name, each in found.items()}, expected, (batch, length, how))


@every_label
def test_models_stacked_under_vmap_can_be_differentiated_outside_of_it(label):
    models, x = [mixer_with_visible_weights(label, 9) for _ in range(2)], random_normal(2, 2, 9, WIDTH)
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(-1.5)
    stacked, _ = torch.func.stack_module_state(models)
    vmap(lambda parameters, rows: functional_call(models[0], parameters, (rows,)))(stacked, x).sum().backward()
    for i, model in enumerate(models):
        found = {
            name: torch.zeros_like(each[i]) if each.grad is None else each.grad[i] for name, each in stacked.items()
        }
        assert_equal(found, gradients(model, x[i], torch.ones(())), i)


@pytest.mark.slow
@every_label
def test_parameters_passed_by_functional_call_get_their_gradients(label):
    """``functional_call`` restores the module's parameters before the backward pass, which recomputes blocks."""
    for batch, length, how in shapes_and_paths(label):
        mixer, x, weight = (
            mixer_with_visible_weights(label, length, **how),
            random_normal(batch, length, WIDTH),
            random_normal(batch, length, WIDTH, seed=3),
        )
        lent = {name: each.detach().clone().requires_grad_() for name, each in mixer.named_parameters()}
        expected = gradients(mixer, x, weight)
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.mul_(-1.5)
        value = (functional_call(mixer, lent, (x,)) * weight).sum()
        found = torch.autograd.grad(value, list(lent.values()), materialize_grads=True)
        assert_equal(dict(zip(lent, found)), expected, (batch, length, how), 1e-12)


@pytest.mark.slow
@every_label
def test_second_derivatives_equal_path_dense_or_an_error_names_it(label):
    for batch, length, how in shapes_and_paths(label):
        x, direction = random_normal(batch, length, WIDTH), random_normal(batch, length, WIDTH, seed=3)
        mixer = mixer_with_visible_weights(label, length, **how)
        paths = getattr(mixer, "paths", ("auto",))
        dense = mixer_with_visible_weights(label, length, path="dense" if "dense" in paths else "auto")
        expected = second_derivatives(dense, x, direction)
        try:
            assert_equal(second_derivatives(mixer, x, direction), expected, (batch, length, how))
        except TrainingError as error:
            assert mixer.resolve_path(batch, length) == "sdpa" and 'path="dense"' in str(error)


@every_label
def test_a_gradient_of_a_gradient_under_torch_func_is_the_second_derivative(label):
    batch, length = 2, 9
    mixer, x, direction = (
        mixer_with_visible_weights(label, length),
        random_normal(batch, length, WIDTH),
        random_normal(batch, length, WIDTH, seed=3),
    )

    def along(x):
        return (grad(lambda x: mixer(x).square().sum())(x) * direction).sum()

    found = grad(along)(x)
    if "dense" in getattr(mixer, "paths", ()):
        mixer.path = "dense"
    assert_equal({0: found}, {0: second_derivatives(mixer, x, direction)[0]}, "")


@pytest.mark.slow
@pytest.mark.parametrize("label", labels_to_trace(EXPORTED, 0))
def test_one_exported_program_computes_every_batch_and_length(label):
    longest = 12
    mixer = build_mixer(label, longest).eval()
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=longest)
    program = torch.export.export(mixer, (torch.randn(3, 7, WIDTH),), dynamic_shapes=({0: batch, 1: length},)).module()
    for shape in ((3, 7), (1, 2), (2, longest), (20, 5)):
        x = torch.randn(*shape, WIDTH)
        torch.testing.assert_close(program(x), mixer(x), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("label", labels_to_trace(COMPILED, 1))
def test_a_compiled_mixer_computes_every_batch_and_length(label):
    torch._dynamo.reset()
    mixer = build_mixer(label, 12)
    compiled = torch.compile(mixer, dynamic=True, fullgraph=True, backend="eager")  # what torch makes of it is its own
    for shape in ((3, 7), (2, 12)):
        x, weight = torch.randn(*shape, WIDTH), torch.randn(*shape, WIDTH)
        torch.testing.assert_close(compiled(x), mixer(x), rtol=1e-4, atol=1e-6)
        found, expected = gradients(compiled, x, weight), gradients(mixer, x, weight)
        assert_equal({name.removeprefix("_orig_mod."): each for name, each in found.items()}, expected, shape, 1e-4)


@every_label
def test_a_cache_holds_the_numbers_that_the_allocation_states(label):
    small = {"window": 3} if "window" in used_settings(label) else {}
    mixer, cache = build_mixer(label, 8, **small), None
    if label.startswith("my:"):
        with pytest.raises(BudgetError, match="does not state what decoding carries .* state\\(seq_len\\)"):
            state_size(mixer.allocation, 8)
        return
    with torch.no_grad():
        for tokens, token in enumerate(torch.randn(1, 6, WIDTH).unbind(1), start=1):
            _, cache = mixer.step(token, cache)
            assert held_numbers(cache) == state_size(mixer.allocation, tokens), tokens


def test_the_tested_labels_are_of_every_family():
    built = set(families()) - {"hybrid"}  # whose layers have the mixers of the others
    assert {family_of(each.values[0]).name for each in label_parameters()} == built


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lin:relu-g", "lin:elu"])
def test_labels_of_a_plugin_pass_the_tests_of_this_module(label, install_example):
    install_example("plugin")
    for name, test in list(globals().items()):
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["label"]:
            test(label)
