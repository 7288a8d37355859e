"""The training step that all jobs of a group take together.

Weights, gradients and moments of the N jobs of a group are matrices with one row per job.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from madbench.details import Details
from madbench.errors import TrainingError
from madbench.labels.traits import Traits
from madbench.mixers.traits import mixers_in
from madbench.models.token_loss import TokenLoss
from madbench.suites.trial import Trial
from madbench.training.member import GroupMember
from madbench.training.optimizer import AdamW, decaying_parameters
from madbench.training.step import Taken

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

CLIP_EPS = 1e-6  # as in torch.nn.utils.clip_grad_norm_
STACKABLE_BYTES = 2**28  # largest (B, H, T, T) float32 tensor of one job for which the dense path is used
Batches = list[tuple[list[Tensor], Tensor | float]]
"""The micro-batches of a step of N jobs. Each is a pair: its tensors (N, B, ...), and its share in the mean loss of
each job, as a tensor (N,) or one number.
"""


class _Call(nn.Module):
    """A module whose forward pass is ``call(network, ...)``.

    It is needed because ``functional_call`` accepts only modules.
    """

    def __init__(self, network: nn.Module, call: Callable[..., Tensor]):
        super().__init__()
        self.network, self.call = network, call

    def forward(self, *arguments: Tensor) -> Tensor:
        return self.call(self.network, *arguments)


class Stack:
    """The training step of N jobs that differ only in seed, learning rate and weight decay.

    ``weights``, ``gradients`` and AdamW's two moments are matrices (N, P), where P is the number of parameters of one
    job. A row starts with the parameters that have weight decay. The parameters of each member's model and the state of
    its optimizer become views of the member's row, so its evaluations and checkpoints are those of a job that trains
    alone. The loss of a member depends only on its own row, so one backward pass of the summed losses gives each
    member's gradient.

    Raises ``TrainingError`` if the models differ in more than the values of their parameters, if a mixer cannot be
    stacked, in general or at this sequence length, or if the optimizer is not AdamW.
    """

    warm_up = 1

    def __init__(self, members: Sequence[GroupMember]):
        self.members, self.trials = list(members), [member.trial for member in members]
        if members[0].job.training.optimizer != "adamw":
            raise TrainingError(f"{members[0].job.training.optimizer} updates the matrices of one job at a time")
        named = dict(self.trials[0].model.named_parameters())
        which = decaying_parameters(self.trials[0].model, members[0].job.fidelity)
        self.names = sorted(named, key=lambda name: name not in which)  # a stable sort
        self.shapes = [named[name].shape for name in self.names]
        self.decaying = sum(named[name].numel() for name in which)  # number of columns with weight decay
        _check_equal([trial.model for trial in self.trials])
        size = (len(members), sum(shape.numel() for shape in self.shapes))
        like = next(iter(named.values())).detach()
        self.weights, self.gradients, *self.moments = (like.new_zeros(size) for _ in range(4))
        precise = torch.float64 if like.device.type == "cpu" else torch.float32  # the dtype that AdamW's kernel reads
        self.rates = torch.zeros(len(members), dtype=precise, device=like.device)
        self.details: Details = {"group": len(members)} if len(members) > 1 else {}
        self.optimizer = self._take_over()
        self.leaves, self.forward = self._alone() if len(members) == 1 else self._together()

    def __call__(self, rates: list[float]) -> Taken:
        """Take the next step of each member. ``rates`` has one learning rate per member."""
        self.rates.copy_(torch.tensor(rates, dtype=self.rates.dtype))
        return self.per_member(*self.compute(self.batches()))

    def per_member(self, losses: Tensor, norms: Tensor | None) -> Taken:
        """Split losses (N,) and norms (N,) into two lists with one entry per member.

        If ``norms`` is None, every entry of the second list is None.
        """
        return list(losses.unbind()), [None] * len(self.members) if norms is None else list(norms.unbind())

    def micro_batches(self) -> list[tuple[tuple[tuple[Tensor, ...], float | Tensor], ...]]:
        """The micro-batches of the next step. Each is a tuple with one pair per member.

        A pair has the tensors (B, ...) of the member's micro-batch, and the share of this micro-batch in the member's
        mean loss.
        """
        return list(zip(*(list(member.trial.micro_batches(member.state.step)) for member in self.members), strict=True))

    def batches(self) -> Batches:
        """The micro-batches of the next step. Their tensors are stacked along a leading axis over the members."""
        stacked = []
        for parts in self.micro_batches():
            tensors = [torch.stack(same) for same in zip(*(batch for batch, _ in parts))]
            shares = [share for _, share in parts]
            if any(isinstance(share, Tensor) for share in shares):
                shares = torch.stack([torch.as_tensor(share, device=self.weights.device) for share in shares])
            stacked.append((tensors, shares if isinstance(shares, Tensor) else shares[0]))
        return stacked

    def compute(self, batches: Batches) -> tuple[Tensor, Tensor | None]:
        """Compute losses and gradients of all micro-batches, clip the gradients, and take a step of the optimizer.

        Return the losses (N,) and the gradient norms before clipping (N,). The norms are None if the trial's ``clip``
        is None.
        """
        total = 0
        for i, (batch, shares) in enumerate(batches):
            losses, *parts = self.losses_and_gradients(batch, shares)
            columns = [part.reshape(len(self.members), -1) for part in parts]
            if i == 0:
                torch.cat(columns, dim=1, out=self.gradients)
            else:
                self.gradients += torch.cat(columns, dim=1)
            total = total + losses
        norms, clip = None, self.trials[0].clip
        if clip is not None:
            norms = self.gradients.norm(dim=1)
            if math.isfinite(clip):
                self.gradients *= (clip / (norms + CLIP_EPS)).clamp(max=1)[:, None]
        self.optimizer.step()
        return cast(Tensor, total), norms

    def losses_and_gradients(self, batch: Sequence[Tensor], shares: Tensor | float) -> list[Tensor]:
        """Return the losses (N,) of N members on a micro-batch, and then the gradients of ``leaves``.

        Each loss is multiplied by the share of the micro-batch in its member's mean loss (``shares``).
        """
        return self.pass_of(self.leaves, batch, shares)

    def pass_of(self, leaves: Sequence[Tensor], batch: Sequence[Tensor], shares: Tensor | float) -> list[Tensor]:
        """Return the losses (N,) of N members on a micro-batch, and then the gradients with respect to ``leaves``.

        ``leaves`` may be copies of :attr:`leaves`. ``shares`` is the share of the micro-batch in each member's mean
        loss, as a tensor (N,), or as one number for all. The losses are multiplied by it.
        """
        with self.trials[0].autocast:
            losses = self.forward(leaves, *batch) * shares
        return [losses.detach(), *torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)]

    def _parts(self, matrix: Tensor) -> list[Tensor]:
        """Views of a matrix (N, P), one per parameter, each of shape (N, *shape of the parameter).

        The views are in the order of ``names``.
        """
        parts = matrix.split([shape.numel() for shape in self.shapes], dim=1)
        return [part.unflatten(1, shape) if shape else part.squeeze(1) for part, shape in zip(parts, self.shapes)]

    def _take_over(self) -> AdamW:
        """Copy the members' weights and moments into the matrices, and make the members' tensors views of the matrices.

        Return an AdamW with at most two parameter groups per member: with weight decay, and without.
        """
        views = dict(zip(self.names, zip(*map(self._parts, (self.weights, *self.moments)))))
        groups, states = [], {}
        for i, member in enumerate(self.members):
            parameters, own = dict(member.trial.model.named_parameters()), member.optimizer
            for group, columns in zip(own.param_groups, (slice(self.decaying), slice(self.decaying, None))):
                row, first, second = (matrix[i, columns] for matrix in (self.weights, *self.moments))
                row.grad, steps = self.gradients[i, columns], torch.zeros((), device=row.device)
                for name in self.names:
                    if any(parameters[name] is parameter for parameter in group["params"]):
                        weight, *moments = (view[i] for view in views[name])
                        _move(parameters[name], own.state[parameters[name]], weight, moments, steps)
                if row.numel():
                    shared = {name: group[name] for name in ("weight_decay", "betas", "eps")}
                    groups.append({"params": [row], "lr": self.rates[i], **shared})
                    states[row] = {"step": steps, "exp_avg": first, "exp_avg_sq": second}
        optimizer = AdamW(groups, fused=True, capturable=self.weights.is_cuda)
        optimizer.state.update(states)
        return optimizer

    def _together(self) -> tuple[list[Tensor], Callable[..., Tensor]]:
        """Return the ``leaves`` and the ``forward`` function for a group of several members.

        The leaves are parameters (N, ...) that share memory with ``weights``. The function maps the leaves and a
        micro-batch to the losses (N,).
        """
        trial = self.trials[0]
        network = copy.deepcopy(trial.loss)
        heads = self.members[0].job.model.n_head
        with trial.autocast:  # the path depends on it
            mixers = mixers_in(network)
            paths = [_take_stackable_path(mixer, traits, trial, heads) for _, mixer, traits in mixers]
            if taken := max(paths, default=""):
                self.details["path"] = taken
        leaves = [part.detach().requires_grad_() for part in self._parts(self.weights)]
        return leaves, self._with_separate_outputs(network) or vmap(self._function(network, nn.Module.__call__))

    def _function(self, network: nn.Module, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function that computes ``call(network, *arguments)`` with other values of the parameters.

        The first argument of the function is a list of parameters in the order of ``names``. None stands for a
        parameter that ``call`` does not need. Further arguments of the function become ``arguments``.
        """
        module = _Call(network, call)
        of_module = {id(parameter): name for name, parameter in module.named_parameters()}
        own = dict(network.get_submodule("model").named_parameters())
        names = [of_module[id(own[name])] for name in self.names]

        def function(parameters: Sequence[Tensor | None], *arguments: Tensor) -> Tensor:
            used = {name: each for name, each in zip(names, parameters) if each is not None}
            y: Tensor = functional_call(module, used, arguments)
            return y

        return function

    def _with_separate_outputs(self, network: nn.Module) -> Callable[..., Tensor] | None:
        """Return a function from leaves and a micro-batch to losses (N,). It computes the output layers one by one.

        On a CPU, the token loss computes logits only for tokens that count in the loss, which it cannot do under
        ``vmap``. So ``vmap`` covers only the layers before the output layer. None if this saves nothing: for other
        losses, and on a GPU.
        """
        if not isinstance(network, TokenLoss) or self.weights.is_cuda:
            return None
        layer = getattr(network.model, "output_layer", None)
        output = {id(tensor) for tensor in (network.model.readout if layer is None else layer.parameters())}
        is_of_output = [id(dict(network.model.named_parameters())[name]) in output for name in self.names]
        hidden = vmap(self._function(network, lambda loss, inputs: loss.model.hidden(inputs)))
        loss = self._function(network, TokenLoss.of_hidden)

        def losses(parameters: Sequence[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            nothing = [None] * len(targets)
            used = [each.unbind() if is_used else nothing for each, is_used in zip(parameters, is_of_output)]
            return torch.stack([loss(*each) for each in zip(zip(*used), hidden(parameters, inputs), targets)])

        return losses

    def _alone(self) -> tuple[list[Tensor], Callable[..., Tensor]]:
        """Return the ``leaves`` and the ``forward`` function for a group of one member.

        The leaves are the parameters of the member's model. The function takes the leaves, which it does not use, and a
        micro-batch with a leading axis of size 1. It returns the loss (1,).
        """
        trial, parameters = self.trials[0], dict(self.trials[0].model.named_parameters())

        def loss(_: Sequence[Tensor], *batch: Tensor) -> Tensor:
            of_batch: Tensor = trial.loss(*(tensor.squeeze(0) for tensor in batch))
            return of_batch[None]

        return [parameters[name] for name in self.names], loss


def _move(
    parameter: nn.Parameter, state: dict[str, Tensor], weight: Tensor, moments: list[Tensor], steps: Tensor
) -> None:
    """Copy a parameter and its moments into views of a stack's matrices, and make it use these views from now on.

    ``weight`` and ``moments`` are the views. ``state`` is the optimizer's state of the parameter. ``steps`` is a tensor
    that receives the step count in ``state`` and replaces it.
    """
    weight.copy_(parameter.detach())
    parameter.data, parameter.grad = weight, None
    for name, moment in zip(("exp_avg", "exp_avg_sq"), moments):
        if name in state:
            moment.copy_(state[name])
        state[name] = moment
    if "step" in state:
        steps.copy_(state["step"])
    state["step"] = steps


def _check_equal(models: Sequence[nn.Module]) -> None:
    """Raise ``TrainingError`` unless the models have equal buffers, and parameters of equal shapes and one dtype.

    Also raises it if some parameter is not trained.
    """
    first, *rest = ({name: (p.shape, p.dtype) for name, p in model.named_parameters()} for model in models)
    buffers, *others = (dict(model.named_buffers()) for model in models)
    if not all(parameter.requires_grad for parameter in models[0].parameters()):
        raise TrainingError("some parameters of the model are not trained")
    has_equal_shapes = all(shapes == first for shapes in rest) and len({dtype for _, dtype in first.values()}) == 1
    has_equal_buffers = all(
        other.keys() == buffers.keys() and all(torch.equal(other[name], buffers[name]) for name in buffers)
        for other in others
    )
    if not (has_equal_shapes and has_equal_buffers):
        raise TrainingError("their models differ in more than the values of their parameters")


def _take_stackable_path(mixer: Mixer, traits: Traits, trial: Trial, heads: int) -> str:
    """Make a mixer accept a leading axis over models. Return the name of the path that it has to use for that.

    Empty if the mixer keeps its usual path. ``heads`` is the number of heads, for an estimate of memory. Raises
    ``TrainingError`` if the mixer cannot be stacked. Also raises it if the mixer can be stacked only on its dense path,
    and this path needs too much memory for sequences of the trial's length.
    """
    if traits.trains_alone:
        raise TrainingError(f"{mixer.allocation.label} trains alone: its module may not support a leading model axis")
    if not traits.stacked_path:
        return ""
    batch, length = trial.batch_shape
    if traits.is_stackable and mixer.resolve_path(batch, length) not in ("dense", "chunked"):
        mixer.is_stacked = True
        return ""
    if 2 * heads * batch * length**2 * 4 > STACKABLE_BYTES:  # some labels have two scores per head
        raise TrainingError(f"{length} tokens are too many for a dense path")
    mixer.path = traits.stacked_path
    return mixer.path
