"""Effective settings of a job, observed on the optimizer, the schedule and the model that the job builds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.jobs import BlocksSettings, Job, mapping_text
from madbench.mixers.ops.threads import torch_threads
from madbench.mixers.traits import mixers_in
from madbench.models.blocks import SwiGLU
from madbench.suites import size_of, suite_of
from madbench.suites.tokens import setting_of
from madbench.suites.training import Schedule
from madbench.tasks import generate
from madbench.tasks.base import IGNORE
from madbench.training.optimizer import make_optimizer

if TYPE_CHECKING:
    from madbench.models.token_loss import TokenModel

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "SiLU": lambda z: z / (1 + (-z).exp()),
    "Tanh": lambda z: 1 - 2 / (1 + (2 * z).exp()),
    "ReLU": lambda z: z.clamp(min=0),
    "GELU": lambda z: 0.5 * z * (1 + torch.special.erf(z / math.sqrt(2))),
    "Softplus": lambda z: (1 + z.exp()).log(),
    "Identity": lambda z: z,
}
"""The activation functions of gates that can be recognized, by name, written with elementary operations of torch."""
SHAPES: dict[str, Callable[[float], float]] = {
    "Cosine Decay": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
    "Linear Decay": lambda share: 1 - share,
}
"""The decays of learning rates that can be recognized, by name.

At the start of the decay the rate is the highest, and at its end the lowest. A function maps the share of the decay
that has passed, from 0 to 1, to (rate - lowest) / (highest - lowest).
"""
OF_TRAINING = (
    "optimizer",
    "betas",
    "weight_decay",
    "steps",
    "batch_size",
    "learning_rate",
    "warmup",
    "decay_end",
    "schedule",
    "multi_query",
)
"""The names of settings that are observed on the optimizer, schedule and data. Others are observed on the model."""
TOKENS = 12  # length of the observed sequences, longer than the reach of a short convolution
CLOSE = 1e-3


class ObservedSettings:
    """The settings of jobs as they take effect in the optimizer, the schedule and the model that a job builds.

    Each public method except ``value`` observes one setting of a job. Models are built once, and shared by jobs with
    equal models.
    """

    def __init__(self) -> None:
        self._models: dict[tuple[str, ...], nn.Module] = {}
        self._values: dict[tuple[str, ...], Any] = {}

    def value(self, job: Job, name: str) -> Any:
        """The result of the method ``name`` for a job. It is kept, so that equal jobs are observed once."""
        key = (job.suite, job.task, repr(job.training)) if name in OF_TRAINING else _model_key(job)
        if (name, *key) not in self._values:
            with torch_threads(1):  # models see few tokens, so more threads are slower
                self._values[name, *key] = getattr(self, name)(job)
        return self._values[name, *key]

    def optimizer(self, job: Job) -> str:
        return type(_optimizer(job)).__name__

    def betas(self, job: Job) -> str:
        """The decays of Adam's two moments as text, such as ``(0.9, 0.98)``."""
        return "({:g}, {:g})".format(*_optimizer(job).param_groups[0]["betas"])

    def weight_decay(self, job: Job) -> float:
        """The weight decay of linear maps: the largest decay of any parameter group of the optimizer."""
        decays: list[float] = [group["weight_decay"] for group in _optimizer(job).param_groups]
        return max(decays)

    def steps(self, job: Job) -> int:
        return size_of(job).steps

    def batch_size(self, job: Job) -> int:
        """Sequences per optimizer step."""
        return size_of(job).sequences_per_step

    def learning_rate(self, job: Job) -> float:
        """The largest learning rate of the schedule: that at the end of the warm-up."""
        return _rate(job)(self._rise(job))

    def warmup(self, job: Job) -> int | str:
        """The number of steps over which the learning rate rises, or the text ``None`` if it never rises."""
        return self._rise(job) or "None"

    def decay_end(self, job: Job) -> int:
        """The step at which the decay of the learning rate ends, even if the run ends earlier."""
        return _schedule(job).decay_end

    def schedule(self, job: Job) -> str:
        """The learning rate after the warm-up as text: ``Constant``, a name in ``SHAPES``, or ``another decay``."""
        rate, first, last = _rate(job), self._rise(job), self.steps(job)
        highest, lowest = rate(first), rate(last)
        if math.isclose(highest, lowest):
            return "Constant"
        shares = [part / 16 for part in range(17)]
        left = [(rate(round(first + share * (last - first))) - lowest) / (highest - lowest) for share in shares]
        for name, shape in SHAPES.items():
            if all(abs(value - shape(share)) < 0.01 for share, value in zip(shares, left)):
                return name
        return "another decay"

    def _rise(self, job: Job) -> int:
        rate, last = _rate(job), self.steps(job)
        return next((step for step in range(last) if rate(step + 1) <= rate(step)), last)

    def multi_query(self, job: Job) -> str:
        """The text ``True`` if at least one of 12 generated test sequences has several targets, otherwise ``False``."""
        setting = replace(setting_of(job), num_test_examples=TOKENS)
        targets = generate(job.task, setting, "test", job.derived_seed("data")).targets
        return str(bool((targets != IGNORE).sum(axis=1).max() > 1))

    def layers(self, job: Job) -> int:
        """The number of mixers of the model."""
        return len(self._mixers(job))

    def heads(self, job: Job) -> int:
        n_head: int = self._mixers(job)[0].n_head
        return n_head

    def key_width(self, job: Job) -> int:
        """Width of the queries of the first mixer, summed over heads."""
        return int(self._mixers(job)[0].q.weight.shape[0])

    def value_width(self, job: Job) -> int:
        """Width of the values of the first mixer, summed over heads."""
        return int(self._mixers(job)[0].v.weight.shape[0])

    def key_share(self, job: Job[BlocksSettings]) -> float:
        """The width of the queries of the first mixer, summed over heads, divided by the width of the model."""
        return self.key_width(job) / job.model.d_model

    def value_share(self, job: Job[BlocksSettings]) -> float:
        """The width of the values of the first mixer, summed over heads, divided by the width of the model."""
        return self.value_width(job) / job.model.d_model

    def mix_rank(self, job: Job) -> int:
        """Rank of the mixing matrix R(1) of the first mixer."""
        return int(self._mixers(job)[0].mix1.A.shape[-1])

    def conv_taps(self, job: Job) -> int:
        """Number of taps of the first mixer's convolution of keys."""
        return int(self._mixers(job)[0].k_conv.weight.shape[-1])

    def block_rows(self, job: Job) -> int:
        """Number of query rows that the first mixer computes at once if it takes the path ``chunked``."""
        chunk: int = self._mixers(job)[0].chunk
        return chunk

    def start_std(self, job: Job) -> str:
        """Initial standard deviation of the query projection of the first mixer, as text with two digits."""
        return f"{float(self._mixers(job)[0].q.weight.detach().std()):.2g}"

    def embedding_std(self, job: Job) -> str:
        """Initial standard deviation of the token embeddings, as text with two digits."""
        tables = (module for module in self._model(job).modules() if isinstance(module, nn.Embedding))
        return f"{float(next(tables).weight.detach().std()):.2g}"

    def mlp(self, job: Job) -> str:
        """``Yes (dim = WIDTH)`` if the model has one gated MLP per mixer, all of this inner width, else ``No``."""
        widths = {mlp.up.weight.shape[0] for mlp in self._mlps(job)}
        is_interleaved = len(self._mlps(job)) == self.layers(job) and len(widths) == 1
        return f"Yes (dim = {widths.pop()})" if is_interleaved else "No"

    @torch.no_grad()
    def mlp_activation(self, job: Job) -> str:
        """The text ``SwiGLU`` if the first gated MLP is ``down(silu(gate x) * up x)``, else ``gated by FUNCTION``."""
        mlp = self._mlps(job)[0]
        x = torch.linspace(-40, 40, 3 * mlp.gate.in_features).view(3, -1)
        name = _recognized(lambda f: mlp.down(f(mlp.gate(x)) * mlp.up(x)), mlp(x))
        return "SwiGLU" if name == "SiLU" else f"gated by {name}"

    @torch.no_grad()
    def gates(self, job: Job[BlocksSettings]) -> list[str]:
        """The activation functions of the first mixer's gates: those of the queries, the readout, R(1) and R(2).

        Names are as in ``FUNCTIONS``, without duplicates, in alphabetical order.
        """
        mixer, d_model = self._mixers(job)[0], job.model.d_model
        x = torch.linspace(-40, 40, TOKENS * d_model).view(1, TOKENS, d_model)
        p, gate = mixer.project(x, 0), mixer.qk_gate(x)
        heads, width = p.q.shape[1], p.q.shape[3]

        def gated_queries(f: Callable[[Tensor], Tensor]) -> Tensor:
            return torch.unflatten(mixer.q(x) * f(gate), -1, (heads, width)).transpose(1, 2)

        read = torch.ones(1, mixer.n_head, TOKENS, mixer.v.weight.shape[0] // mixer.n_head)
        names = {_recognized(gated_queries, p.q)}
        names.add(_recognized(lambda f: mixer.o(f(mixer.vo_gate(x))), mixer.read_out(read, x)))
        for mixing, strengths in ((mixer.mix1, p.s1), (mixer.mix2, p.s2)):
            flat = strengths.transpose(1, 2).flatten(-2)
            names.add(_recognized(functools.partial(_gated, mixing.gate(x)), flat))
        return sorted(names)

    @torch.no_grad()
    def dropout(self, job: Job) -> str:
        """The text ``None`` if two passes of the model in training mode give equal numbers, otherwise ``some``."""
        hidden = cast("TokenModel", self._model(job).train()).hidden
        return "None" if torch.equal(hidden(_repeated(job)), hidden(_repeated(job))) else "some"

    @torch.no_grad()
    def preprocessing(self, job: Job[BlocksSettings]) -> str:
        """The short convolution of queries and keys of the first mixer as text, such as ``ShortConv (dim = 4)``.

        The text is ``None`` for a mixer without a convolution. If queries and keys have convolutions of different
        sizes, both texts are joined by "and". The size is measured: it is the number of tokens whose query, or key,
        changes if the first token is changed.
        """
        mixer, d_model = self._mixers(job)[0], job.model.d_model
        x = torch.linspace(-1, 1, TOKENS * d_model).view(1, TOKENS, d_model)
        changed = torch.cat((-x[:, :1], x[:, 1:]), dim=1)
        before, after = mixer.ingredients(x)[0], mixer.ingredients(changed)[0]
        sides = (before.q - after.q, before.k - after.k)
        taps = {int((side.abs().amax((0, 1, 3)) > 0).sum()) for side in sides}
        names = ["None" if count == 1 else f"ShortConv (dim = {count})" for count in sorted(taps)]
        return " and ".join(names)

    def block(self, job: Job) -> str:
        """The design of the blocks as text, from their first mixer.

        ``Gated DeltaNet style (Type 2)`` if the mixer has a convolution of queries and a gated, normed output.
        ``Transformer style (Type 1)`` if it has neither, and ``neither type`` if it has only one.
        """
        mixer = self._mixers(job)[0]
        parts = bool(mixer.q_conv), bool(mixer.out_gate and mixer.out_norm)
        names = {(False, False): "Transformer style (Type 1)", (True, True): "Gated DeltaNet style (Type 2)"}
        return names.get(parts, "neither type")

    @torch.no_grad()
    def positions(self, job: Job) -> str:
        """``Yes`` if the position of a token changes the inputs or the queries of the first mixer, else ``No``.

        The model reads a sequence of equal tokens, and the last two rows are compared.
        """
        model, mixer = self._model(job), self._mixers(job)[0]
        inputs: list[Tensor] = []
        hook = mixer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
        cast("TokenModel", model).hidden(_repeated(job))
        hook.remove()
        rows = inputs[0], mixer.ingredients(inputs[0])[0].q
        differs = any(not torch.allclose(x[..., -1, :], x[..., -2, :], rtol=CLOSE, atol=0) for x in rows)
        return "Yes" if differs else "No"

    def _mixers(self, job: Job) -> list[Any]:
        return [mixer for _, mixer, _ in mixers_in(self._model(job))]

    def _mlps(self, job: Job) -> list[SwiGLU]:
        return [module for module in self._model(job).modules() if isinstance(module, SwiGLU)]

    def _model(self, job: Job) -> nn.Module:
        key = _model_key(job)
        if key not in self._models:
            self._models[key] = suite_of(job).Trial.build(job)
        return self._models[key]


def _model_key(job: Job) -> tuple[str, ...]:
    """A key that is equal for jobs whose models differ at most in their seed, vocabulary and length."""
    return job.suite, job.label, job.budget, job.fidelity, repr(job.model), mapping_text(job.mixer)


def _optimizer(job: Job) -> torch.optim.Optimizer:
    """An optimizer with the settings of a job, for a model of a single linear map."""
    return make_optimizer(nn.Linear(1, 1), job.training, job.fidelity)


def _gated(x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    return f(x)


def _schedule(job: Job) -> Schedule:
    """The learning-rate schedule of a job. Its suite must define one."""
    schedule = suite_of(job).schedule(job)
    assert schedule is not None
    return schedule


def _rate(job: Job) -> Callable[[int], float]:
    """The learning rate by step, as the trial of the job gives it to the optimizer.

    The trial is not opened, because that would load its data.
    """
    suite = suite_of(job)
    trial = suite.Trial.__new__(suite.Trial)
    trial.job, trial.schedule, trial.steps = job, _schedule(job), size_of(job).steps
    return trial.learning_rate


def _repeated(job: Job) -> Tensor:
    return torch.ones(1, TOKENS, dtype=torch.long)


def _recognized(gated: Callable[[Callable[[Tensor], Tensor]], Tensor], measured: Tensor) -> str:
    """The name in ``FUNCTIONS`` of the first function f for which ``gated(f)`` agrees with ``measured``.

    Two tensors agree if no entries differ by more than ``CLOSE`` times the largest absolute value of ``gated(f)``. The
    result is ``another function`` if no function agrees.
    """
    for name, function in FUNCTIONS.items():
        expected = gated(function)
        if float((measured - expected).abs().max()) <= CLOSE * float(expected.abs().max()):
            return name
    return "another function"
