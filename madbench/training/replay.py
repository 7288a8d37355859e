"""Forward and backward passes on a CPU that are recorded once and replayed with bit-identical results.

A step of a small model makes a thousand short calls, and most of their time goes into Python and autograd. A recorded
pass is called a program. It contains only the native operators of the pass, in order, and TorchScript's interpreter
runs it. A program replaces the plain pass only after both gave equal bits, so it changes no number of a run.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from madbench.details import Details
from madbench.mixers.traits import has_name, mixers_in
from madbench.training import distributed as world
from madbench.training.devices import return_freed_memory
from madbench.training.groups import shape_of
from madbench.training.member import GroupMember
from madbench.training.stack import Stack
from madbench.training.step import PlainStep, add_to_gradients

if TYPE_CHECKING:
    from madbench.models.token_loss import TokenLoss

LEAST_STEPS = 300
"""The number of steps that must remain before a program is recorded. Recording takes one or two seconds, and a program
saves 2 to 10 ms per step.
"""
MOST_KINDS = 4
"""The largest number of programs of one job. A language model needs one program, a MAD task two or three."""
MOST_PROGRAMS = 12
"""The largest number of programs that a process keeps. Later jobs use them if they differ only in seed, learning rate
and weight decay.
"""
LONGEST_PASS = 0.2
"""The longest plain pass, in seconds, for which a program is recorded. A longer pass gains less than a twentieth, and
its recording needs much memory, because for a moment all intermediate tensors of the pass exist at once.
"""
TIMED = 2
"""The number of plain passes that are timed before the recording. The shortest one is compared with ``LONGEST_PASS``.
"""
PROOFS = 2
"""The number of inputs for which a program must give the same bits as the plain pass before it replaces that pass."""
PROFILED_CALLS = 3
"""The number of calls of a new program after which the interpreter has optimized it. The first proof makes this many
calls, so that it tests the optimized program.
"""

SCRIPTS = {
    "layer_norm_backward": """
def layer_norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor):
    bias = gain  # only its shape counts
    return torch.ops.aten.native_layer_norm_backward(grad, x, gain.shape, mean, rstd, gain, bias, [True, True, True])
""",
    "multiply": """
def multiply(a: Tensor, b: Tensor, bias: Optional[Tensor]):
    scalars = torch.jit.annotate(List[Optional[number]], [])
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", scalars, "")
""",
}
"""TorchScript functions, by name, for two operators that the tracer refuses: the backward operator of LayerNorm, and
oneDNN's matrix product.

The tracer accepts no operator with a list of booleans or numbers among its arguments, or with an output that may be
missing. Each function is compiled when it is first needed, because torch may lack an operator: a build without oneDNN
has no ``_linear_pointwise``.
"""

PLAIN = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.GELU, nn.Sequential, nn.ModuleList)
"""Torch modules in our models whose output depends only on their input and their parameters."""

Pass = Callable[..., Sequence[Tensor | None]]
"""A function of tensors that returns a list of tensors, some of which may be None, such as losses and gradients. Its
result depends only on its arguments.
"""
_programs: dict[Hashable, Pass] = {}


def can_replay(member: GroupMember) -> bool:
    """True if programs may compute the passes of a member, and enough steps are left for recording to save time.

    A program, the recording of a pass, does not repeat effects of Python's state, of random numbers, or of tensor
    values that Python reads. So every mixer must declare that it is replayable, and every other module must belong to
    this package or be in :data:`PLAIN`. The member must train on a CPU in one process.
    """
    trial = member.trial
    is_alone = torch.device(member.device).type == "cpu" and world.size() == 1
    return is_alone and trial.steps - member.state.step >= LEAST_STEPS and is_known(trial.loss)


def is_known(loss: nn.Module) -> bool:
    """True if every module of a loss and its model can be recorded and replayed.

    This holds for mixers whose trait ``is_replayable`` is true, other modules of this package, and modules in
    :data:`PLAIN`.
    """
    mixers = {name: traits for name, _, traits in mixers_in(loss)}
    others = [module for name, module in loss.named_modules() if not has_name(name, tuple(mixers))]
    is_ours = all(type(module).__module__.startswith("madbench.") or type(module) in PLAIN for module in others)
    return is_ours and hasattr(loss, "branch") and all(traits.is_replayable for traits in mixers.values())


class Replayed:
    """A function for a training pass that is replaced by a recorded program once the program has given equal bits.

    There is one program for each kind of input. Inputs of one kind have equal shapes and dtypes and an equal
    ``branch``.

    Args:
        plain: the function that computes the pass without a program.
        key: passes with equal keys share programs.
        fixed: the number of leading inputs whose shapes never change, such as parameters.
    """

    def __init__(self, plain: Pass, key: Hashable, fixed: int):
        self.plain, self.key, self.fixed = plain, key, fixed
        self.programs: dict[Hashable, Pass | None] = {}  # None if no program gives equal bits
        self.seconds: dict[Hashable, list[float]] = {}
        self.proofs: dict[Hashable, int] = {}
        self.has_replayed = False

    def __call__(self, branch: Hashable, *inputs: Tensor) -> Sequence[Tensor | None]:
        """Return ``plain(*inputs)``, computed by a program if possible.

        ``branch`` says what shapes do not show: inputs with equal branch and shapes must call the same operators. If it
        is None, no program is used.
        """
        kind = (branch, *((tensor.shape, tensor.dtype) for tensor in inputs[self.fixed :]))
        if branch is None or (kind not in self.seconds and len(self.seconds) == MOST_KINDS):
            return self.plain(*inputs)
        seconds = self.seconds.setdefault(kind, [])
        if len(seconds) < TIMED:
            return self._timed(seconds, inputs)
        if kind not in self.programs:
            is_short = min(seconds) <= LONGEST_PASS
            self.programs[kind], self.proofs[kind] = self._program(kind, inputs) if is_short else None, 0
        program = self.programs[kind]
        if program is None:
            return self.plain(*inputs)
        if self.proofs[kind] < PROOFS:
            return self._prove(kind, program, inputs)
        self.has_replayed = True
        return program(*inputs)

    def _timed(self, seconds: list[float], inputs: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Compute the pass as usual, without a recorded program, append its time in seconds to ``seconds``, and return
        its outputs.
        """
        # with one thread, CPU time leaves out other processes
        clock = time.perf_counter if torch.get_num_threads() > 1 else time.thread_time
        began = clock()
        outputs = self.plain(*inputs)
        seconds.append(clock() - began)
        return outputs

    def _program(self, kind: Hashable, inputs: Sequence[Tensor]) -> Pass | None:
        if program := _programs.pop((self.key, kind), None):
            return program
        try:
            return record(self.plain, inputs)
        except Exception:  # an operator that cannot be recorded, or a version of torch without the interpreter
            return None
        finally:  # all intermediate tensors of the pass existed at once
            return_freed_memory()

    def _prove(self, kind: Hashable, program: Pass, inputs: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Compute a pass with and without its program, and return the outputs computed without it.

        The program is discarded unless both outputs are equal, bit for bit. ``kind`` is the key of the program.
        """
        expected = self.plain(*inputs)
        try:
            calls = PROFILED_CALLS if self.proofs[kind] == 0 else 1
            is_right = all(_are_equal(expected, program(*inputs)) for _ in range(calls))
        except RuntimeError:  # sizes were recorded as constants
            is_right = False
        if is_right:
            self.proofs[kind] += 1
            _programs[self.key, kind] = program
            while len(_programs) > MOST_PROGRAMS:
                del _programs[next(iter(_programs))]
        else:
            self.programs[kind] = None
            _programs.pop((self.key, kind), None)
        return_freed_memory()
        return expected


def record(plain: Pass, inputs: Sequence[Tensor]) -> Pass:
    """Record the native operators that ``plain(*inputs)`` calls, including those of the backward pass.

    The result is a program: a function like ``plain`` for inputs of the same shapes. Raises exceptions of many kinds if
    torch cannot record or run an operator.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    is_absent: list[bool] = []

    def present(*inputs: Tensor) -> list[Tensor]:
        outputs = plain(*inputs)
        is_absent[:] = [output is None for output in outputs]
        return [output for output in outputs if output is not None]

    graph = make_fx(present, tracing_mode="real", _allow_non_fake_inputs=True)(*inputs)

    class Traced(torch.fx.Interpreter):
        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if target is torch.ops.aten.native_layer_norm_backward.default:
                grad, x, _, mean, rstd, gain, *_ = args
                return _script("layer_norm_backward")(grad, x, mean, rstd, gain)
            if str(target) == "mkldnn._linear_pointwise.default":
                return _script("multiply")(*args[:3])
            return super().call_function(target, args, kwargs)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; without it, passes run plainly
        run = torch.jit.trace(lambda *inputs: tuple(Traced(graph).run(*inputs)), tuple(inputs), check_trace=False)

    def program(*inputs: Tensor) -> list[Tensor | None]:
        with torch.no_grad():
            outputs = iter(run(*inputs))
        return [None if absent else next(outputs) for absent in is_absent]

    return program


class ReplayStep(PlainStep):
    """The training step of one job on a CPU: a :class:`PlainStep` whose passes are recorded once and then replayed."""

    warm_up = 1 + TIMED + PROOFS

    def __init__(self, member: GroupMember):
        super().__init__(member)
        self.names, self.parameters = zip(*self.network.named_parameters())
        self.passes = Replayed(self._pass, shape_of(member.job), fixed=len(self.names))

    @property
    def details(self) -> Details:
        """The details about the steps for a run's record.

        ``replayed`` is True if a program was used, and missing otherwise.
        """
        return {"replayed": True} if self.passes.has_replayed else {}

    def add_gradients(self, batch: Sequence[Tensor], share: float | Tensor) -> Tensor:
        """Add the gradients of a micro-batch to the parameters' gradients. Return its loss times ``share``.

        ``share`` is the micro-batch's share in the mean loss of the step.
        """
        share = torch.as_tensor(share, dtype=torch.float32)
        loss, *gradients = self.passes(cast("TokenLoss", self.network).branch(*batch), *self.parameters, *batch, share)
        add_to_gradients(self.parameters, gradients)
        return cast(Tensor, loss)

    def _pass(self, *inputs: Tensor) -> list[Tensor | None]:
        """Compute the loss and the gradients from one list of inputs.

        The inputs are the parameters, the tensors of a micro-batch, and the share of this micro-batch in the step's
        mean loss.
        """
        parameters, (*batch, share) = inputs[: len(self.names)], inputs[len(self.names) :]
        with self.member.trial.autocast:
            loss = functional_call(self.network, dict(zip(self.names, parameters)), tuple(batch)) * share
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [loss.detach(), *map(_laid_out_like, gradients, parameters)]


class ReplayStack(Stack):
    """The training step of several jobs on a CPU: a :class:`Stack` whose passes are recorded once and then replayed."""

    warm_up = ReplayStep.warm_up

    def __init__(self, members: Sequence[GroupMember]):
        super().__init__(members)
        self.passes = Replayed(self._pass, (shape_of(members[0].job), len(members)), fixed=len(self.leaves))

    def losses_and_gradients(self, batch: Sequence[Tensor], shares: Tensor | float) -> list[Tensor]:
        """Return the losses (N,) of N members on a micro-batch, and then the gradients of ``leaves``.

        Each loss is multiplied by the share of the micro-batch in its member's mean loss (``shares``).
        """
        branches = [cast("TokenLoss", self.trials[0].loss).branch(*own) for own in zip(*batch)]
        branch = None if None in branches else tuple(branches)
        outputs = self.passes(branch, *self.leaves, *batch, torch.as_tensor(shares, dtype=torch.float32))
        if self.passes.has_replayed:
            self.details["replayed"] = True
        return cast("list[Tensor]", outputs)

    def _pass(self, *inputs: Tensor) -> list[Tensor]:
        leaves, (*batch, shares) = inputs[: len(self.leaves)], inputs[len(self.leaves) :]
        return self.pass_of(leaves, batch, shares)


@functools.cache
def _script(name: str) -> Any:
    """The compiled function with this name in :data:`SCRIPTS`. It is kept because recorded programs refer to it."""
    return getattr(torch.jit.CompilationUnit(SCRIPTS[name]), name)


def _laid_out_like(gradient: Tensor | None, parameter: Tensor) -> Tensor | None:
    """Return the gradient in the memory layout (strides) of its parameter, which the optimizer's kernel requires.

    None stays None.
    """
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _are_equal(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(one is other if one is None or other is None else torch.equal(one, other) for one, other in pairs)
