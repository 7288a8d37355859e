"""GPT-2's model with any mixer in place of attention (Radford et al. 2019), and generation of text with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.errors import ConfigError, TrainingError
from madbench.mixers import sharing
from madbench.mixers.lengths import depends_on_length
from madbench.mixers.ops.linear_maps import call
from madbench.mixers.traits import kind_of, output_names
from madbench.models.blocks import RMSNorm, SwiGLU, embedding, linear
from madbench.models.token_loss import logits_of

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

NORM_EPS = 1e-5
Norm = Literal["layernorm", "rmsnorm"]


def layer_norm(width: int) -> nn.LayerNorm:
    """Make a LayerNorm with a gain and no bias.

    Under autocast its input (the residual stream) and output are float32.
    """
    return nn.LayerNorm(width, eps=NORM_EPS, bias=False)


NORMS: dict[Norm, Callable[[int], nn.Module]] = {"layernorm": layer_norm, "rmsnorm": RMSNorm}


class MLP(nn.Module):
    """GELU(x W_up) W_down with the exact GELU and no biases.

    The inner width is ``width``, or 4 ``d_model`` if that is 0.
    """

    def __init__(self, d_model: int, width: int = 0):
        super().__init__()
        self.up = linear(d_model, width or 4 * d_model)
        self.down = linear(width or 4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., D)."""
        return call(self.down, F.gelu(call(self.up, x)))


class Block(nn.Module):
    """A pre-norm block: x + mixer(norm(x)), then x + MLP(norm(x)). The two norms have separate gains and no bias."""

    def __init__(
        self,
        d_model: int,
        mixer: nn.Module,
        mlp_width: int = 0,
        mlp: Literal["gelu", "swiglu"] = "gelu",
        norm: Norm = "layernorm",
    ):
        super().__init__()
        self.mixer_norm = NORMS[norm](d_model)
        self.mixer = cast("Mixer", mixer)
        self.mlp_norm = NORMS[norm](d_model)
        self.mlp = (SwiGLU if mlp == "swiglu" else MLP)(d_model, mlp_width)

    def forward(self, x: Tensor, shared: sharing.Shared | None = None) -> Tensor:
        """Map x (B, T, D) to (B, T, D).

        ``shared`` has the values that mixers share in this forward pass of the model. None if the block runs outside a
        model.
        """
        x = x + sharing.mix(self.mixer, self.mixer_norm(x), shared)
        hidden: Tensor = self.mlp(self.mlp_norm(x))
        return x + hidden

    def decode(self, x: Tensor, cache: Any, shared: sharing.Shared) -> tuple[Tensor, Any]:
        """Decode x (B, T, D), which follows the tokens of ``cache``. Return the output (B, T, D) and the next cache.

        At the start of a sequence ``cache`` is None. ``shared`` has the values that mixers share in this pass of the
        model.
        """
        mixed, cache = sharing.decode(self.mixer, self.mixer_norm(x), cache, shared)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


@dataclass(frozen=True)
class DecodingState:
    """The state of a model that decodes token by token: everything that it keeps until the next token."""

    ids: Tensor
    """(B, T), the tokens decoded so far."""
    caches: tuple[Any, ...] = ()
    """Cache of each block's mixer; empty if the next token reads all tokens again."""

    @property
    def position(self) -> int:
        """The number of tokens decoded so far, which is also the position of the next token, counted from 0."""
        return self.ids.shape[1]


class GPT(nn.Module):
    """A language model: token embedding, pre-norm blocks, a norm, and a linear output. There is no dropout.

    The default ``output``, ``tied``, uses the weights of the embedding. With ``mlp="swiglu"`` and ``norm="rmsnorm"``,
    the blocks are those of LLaMA (Touvron et al. 2023) with any mixer.

    ``make_mixer`` is called once per block. Weights start from N(0, 0.02^2). Projections into the residual stream are
    scaled by 1 / sqrt(2 n_layer), so that the variance of the stream does not grow with the depth. These are the MLP's
    ``down`` and the projections that a mixer's family names (:class:`madbench.labels.traits.Traits`).

    With d = ``d_model``, the number of parameters is the sum of

    - ``vocab_size`` d for the embedding, and the same number for an untied output;
    - ``seq_len`` d for learned positions;
    - per block: the mixer's parameters, 2 d for norms, and 2 d w for a GELU MLP or 3 d w for a SwiGLU of inner width w;
    - d for the last norm.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_layer: int,
        make_mixer: Callable[[], nn.Module],
        seq_len: int,
        positions: Literal["none", "learned"] = "none",
        mlp_width: int = 0,
        mlp: Literal["gelu", "swiglu"] = "gelu",
        output: Literal["tied", "untied"] = "tied",
        norm: Norm = "layernorm",
    ):
        super().__init__()
        self.seq_len = seq_len
        self.embedding = embedding(vocab_size, d_model)
        self.positions = embedding(seq_len, d_model) if positions == "learned" else None
        self.blocks: Sequence[Block] = cast(
            "Any", nn.ModuleList(Block(d_model, make_mixer(), mlp_width, mlp, norm) for _ in range(n_layer))
        )
        self.norm = NORMS[norm](d_model)
        self.head = linear(d_model, vocab_size) if output == "untied" else None
        outputs = {kind: output_names(mixer, d_model) for kind, mixer in self._mixers_by_kind().items()}
        with torch.no_grad():
            for block in self.blocks:
                names = outputs[kind_of(block.mixer)]
                for weight in (*map(block.mixer.get_parameter, names), block.mlp.down.weight):
                    weight.mul_((2 * n_layer) ** -0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to logits (B, T, vocab_size). Raises ``TrainingError`` if T exceeds the learned positions."""
        return logits_of(self, self.hidden(tokens))

    def hidden(self, tokens: Tensor) -> Tensor:
        """Map ids (B, T) to the vectors (B, T, D) that the output layer maps to logits."""
        x = self._embed(tokens, 0)
        shared: sharing.Shared = {}
        for block in self.blocks:
            x = block(x, shared)
        y: Tensor = self.norm(x)
        return y

    @property
    def readout(self) -> tuple[Tensor, None]:
        """The weight (vocab_size, D) of the output, and None because the output has no bias."""
        return (self.embedding if self.head is None else self.head).weight, None

    @property
    def output_layer(self) -> nn.Module | None:
        """The layer that maps the result of :meth:`hidden` to logits. None if the output is tied to the embedding."""
        return self.head

    def decode(
        self, tokens: Tensor, state: DecodingState | None = None, slide: bool = False
    ) -> tuple[Tensor, DecodingState]:
        """Decode ids (B, T) that follow ``state``. Return logits (B, vocab_size) of the next token, and the new state.

        At the start of a sequence ``state`` is None, and the tokens are a prompt.

        ::

            with torch.inference_mode():
                logits, state = model.decode(prompt)
                for _ in range(count):
                    logits, state = model.decode(logits.argmax(-1, keepdim=True), state)

        The logits equal those of :meth:`forward` at the last position, on all tokens so far. If outputs of the mixers
        depend on the length of the input (:mod:`madbench.mixers.lengths`), nothing can be cached and all tokens are
        read again.

        If ``slide`` is true and there are more than ``seq_len`` tokens, the logits equal those of :meth:`forward` at
        the last position, on the newest ``seq_len`` tokens (:meth:`newest`). These are read again for each new token.
        Caches would be wrong here: from the second block on, the cached values of a token depend on tokens that have
        left the context.

        Raises ``TrainingError`` if there are no tokens, or if a mixer has no method ``step``. Also raised for more than
        ``seq_len`` tokens if positions are learned.
        """
        if tokens.shape[1] == 0:
            raise TrainingError("the prompt is empty; decoding needs at least one token")
        for mixer in (block.mixer for block in self.blocks):
            if not hasattr(mixer, "step"):
                raise TrainingError(f"{type(mixer).__name__} has no 'step': it cannot decode token by token")
        ids = tokens if state is None else torch.cat((state.ids, tokens), dim=1)
        read = self.newest(ids) if slide else ids
        if read.shape != ids.shape or self.rows_depend_on_length:
            return logits_of(self, self.hidden(read)[:, -1]), DecodingState(ids)
        if state is None or not state.caches:
            tokens, caches = ids, (None,) * len(self.blocks)
        else:
            caches = state.caches
        x = self._embed(tokens, ids.shape[1] - tokens.shape[1])
        shared: sharing.Shared = {}
        next_caches = []
        for block, cache in zip(self.blocks, caches):
            x, cache = block.decode(x, cache, shared)
            next_caches.append(cache)
        return logits_of(self, self.norm(x[:, -1])), DecodingState(ids, tuple(next_caches))

    @functools.cached_property
    def rows_depend_on_length(self) -> bool:
        """True if the outputs of some mixer for given tokens change when more tokens follow.

        This is measured once per kind of mixer (:func:`madbench.mixers.lengths.depends_on_length`).
        """
        d_model = self.readout[0].shape[1]
        return any(depends_on_length(mixer, d_model, self.seq_len) for mixer in self._mixers_by_kind().values())

    def _mixers_by_kind(self) -> dict[Hashable, Mixer]:
        """The first mixer of each kind in the model, by kind (:func:`madbench.mixers.traits.kind_of`)."""
        return {kind_of(block.mixer): block.mixer for block in reversed(self.blocks)}

    def newest(self, ids: Tensor) -> Tensor:
        """The last ``seq_len`` ids of each sequence in ``ids`` (B, T), or all of them if T is smaller.

        Raises ``TrainingError`` if positions are learned and T exceeds ``seq_len``.
        """
        self._check_positions(ids.shape[1])
        return ids[:, -self.seq_len :]

    def _embed(self, tokens: Tensor, first: int) -> Tensor:
        """Map ids (B, T) to vectors (B, T, D), with learned positions added. The first id is at position ``first``."""
        x: Tensor = self.embedding(tokens)
        end = first + tokens.shape[1]
        if self.positions is None:
            return x
        self._check_positions(end)
        return x + self.positions.weight[first:end]

    def _check_positions(self, length: int) -> None:
        if self.positions is not None and length > self.seq_len:
            raise TrainingError(
                f"{length} tokens, but the model learned positions for seq_len = {self.seq_len}; use fewer tokens"
            )


def past_context(seq_len: int) -> str:
    """The warning that generated text gets slow beyond the model's context of ``seq_len`` tokens."""
    return (
        f"past the model's context of {seq_len} tokens, each new token reads the newest {seq_len} again, which is slow"
    )


def generate(
    model: GPT,
    prompt: Sequence[int],
    count: int,
    *,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    vocab_size: int | None = None,
) -> Iterator[int]:
    """Yield ``count`` ids that follow ``prompt``, each drawn when it is requested.

    Once the text is longer than the model's context, each id depends only on the newest ``seq_len`` tokens
    (:meth:`GPT.decode` with ``slide``).

    Args:
        model: on any device; read, not changed.
        prompt: ids, at least one. For an empty text, use the end-of-text token.
        generator: source of the draws, on the device of the model.
        temperature: divisor of the logits. At 0 the most probable id is taken each time.
        top_k: number of most probable ids from which an id is drawn. If None, all ids.
        vocab_size: number of ids that can be drawn. Higher ids are padding of the embedding. If None, all ids.

    Raises ``ConfigError`` for an invalid temperature or ``top_k``. Raises ``TrainingError`` as :meth:`GPT.decode` does,
    and if the logits are not finite.
    """
    if not 0 <= temperature < math.inf:
        raise ConfigError(
            f"temperature {temperature}: expected a finite number of at least 0 (0: the most probable token)"
        )
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k {top_k}: expected at least 1 (1: the most probable token)")
    longest = len(prompt) + count - 1
    if model.positions is not None and longest > model.seq_len:
        raise TrainingError(
            f"{longest} tokens, but the model learned positions for seq_len = {model.seq_len}; use a shorter prompt or "
            "ask for fewer tokens"
        )
    ids = torch.tensor([prompt], device=model.embedding.weight.device)

    def draws() -> Iterator[int]:
        unread, state = ids, None
        for _ in range(count):
            with torch.inference_mode():
                logits, state = model.decode(unread, state, slide=True)
                token = draw(logits[0, :vocab_size].float(), generator, temperature, top_k)
            yield token
            unread = ids.new_tensor([[token]])

    return draws()  # settings are checked before the first id is requested


def draw(logits: Tensor, generator: torch.Generator, temperature: float, top_k: int | None = None) -> int:
    """Draw an id from float32 logits (V,). :func:`generate` explains the other arguments.

    Raises ``TrainingError`` if the logits are not finite.
    """
    if not logits.isfinite().all():
        raise TrainingError("the model gives no finite logits; its training diverged")
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits, ids = logits.topk(top_k)
    else:
        ids = torch.arange(len(logits), device=logits.device)
    scaled = (logits.double() - logits.max()) / temperature  # 0 for the most probable id at any temperature
    return int(ids[torch.multinomial(scaled.softmax(-1).float(), 1, generator=generator)])
