"""GPT-2's model with any mixer in place of attention (Radford et al. 2019), and text from it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.errors import ConfigError, TrainingError
from madbench.mixers import sharing
from madbench.mixers.lengths import depends_on_length
from madbench.mixers.linear_maps import call
from madbench.mixers.traits import kind_of, output_names
from madbench.models.blocks import RMSNorm, SwiGLU, embedding, linear
from madbench.models.token_loss import logits_of

NORM_EPS = 1e-5
Norm = Literal["layernorm", "rmsnorm"]


def layer_norm(width: int) -> nn.LayerNorm:
    """LayerNorm with a gain and no bias. Its input, the residual stream, and output are float32 even under autocast."""
    return nn.LayerNorm(width, eps=NORM_EPS, bias=False)


NORMS: dict[Norm, Callable[[int], nn.Module]] = {"layernorm": layer_norm, "rmsnorm": RMSNorm}


class MLP(nn.Module):
    """GELU(x W_up) W_down with the exact GELU and no biases. The default inner width is 4 d."""

    def __init__(self, d_model: int, width: int = 0):
        super().__init__()
        self.up = linear(d_model, width or 4 * d_model)
        self.down = linear(width or 4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return call(self.down, F.gelu(call(self.up, x)))


class Block(nn.Module):
    """x + mixer(norm(x)), then x + MLP(norm(x)); the norms have a gain and no bias."""

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
        self.mixer = mixer
        self.mlp_norm = NORMS[norm](d_model)
        self.mlp = (SwiGLU if mlp == "swiglu" else MLP)(d_model, mlp_width)

    def forward(self, x: Tensor, shared: sharing.Shared | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D). ``shared`` are the values that mixers of this pass share; None for a block alone."""
        x = x + sharing.mix(self.mixer, self.mixer_norm(x), shared)
        return x + self.mlp(self.mlp_norm(x))

    def decode(self, x: Tensor, cache: Any, shared: sharing.Shared) -> tuple[Tensor, Any]:
        """Map x (B, T, D) and the mixer's cache (None before a prompt) to (B, T, D) and the new cache."""
        mixed, cache = sharing.decode(self.mixer, self.mixer_norm(x), cache, shared)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


@dataclass(frozen=True)
class DecodingState:
    """The state of token-by-token decoding between two tokens."""

    ids: Tensor  # (B, T), the tokens decoded so far
    caches: tuple[Any, ...] = ()  # cache of each block's mixer; empty if the next token reads all tokens again

    @property
    def position(self) -> int:
        """The number of tokens decoded so far."""
        return self.ids.shape[1]


class GPT(nn.Module):
    """Token embedding, pre-norm blocks, a norm, and an output with the embedding's weights if tied. No dropout.

    With a ``swiglu`` MLP and ``rmsnorm`` the blocks are LLaMA's (Touvron et al. 2023), around any mixer.

    ``make_mixer`` is called once per block. Weights start from N(0, 0.02^2). Projections into the residual stream are
    scaled by 1 / sqrt(2 n_layer), so that its variance does not grow with the depth. These are the MLP's ``down`` and
    the projections that a mixer's family names (:class:`madbench.mixers.traits.Traits`).

    Parameters: ``vocab_size`` d, twice if untied, plus ``seq_len`` d with learned positions, plus per block 8 d^2 (3 d
    w for a SwiGLU of inner width w) + 2 d + the mixer's, plus d.
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
        self.blocks = nn.ModuleList(Block(d_model, make_mixer(), mlp_width, mlp, norm) for _ in range(n_layer))
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
        """Map ids (B, T) to the vectors (B, T, D) from which the logits are a linear map."""
        x = self._embed(tokens, 0)
        shared: sharing.Shared = {}
        for block in self.blocks:
            x = block(x, shared)
        return self.norm(x)

    @property
    def readout(self) -> tuple[Tensor, None]:
        """The output matrix (V, D), and no bias."""
        return (self.embedding if self.head is None else self.head).weight, None

    @property
    def output_layer(self) -> nn.Module | None:
        """The layer that maps :meth:`hidden` to logits; None if the embedding's weights are used instead."""
        return self.head

    def decode(
        self, tokens: Tensor, state: DecodingState | None = None, slide: bool = False
    ) -> tuple[Tensor, DecodingState]:
        """Decode a prompt or more tokens: map ids (B, T) to logits of the next token (B, vocab_size) and the state.

        ::

            with torch.inference_mode():
                logits, state = model.decode(prompt)
                for _ in range(count):
                    logits, state = model.decode(logits.argmax(-1, keepdim=True), state)

        The logits are the last row of :meth:`forward` on all tokens so far. If rows of the mixers depend on the length
        of the input (:mod:`madbench.mixers.lengths`), nothing can be cached and all tokens are read again.

        With ``slide``, past the context the logits are the last row of :meth:`forward` on the newest ``seq_len`` tokens
        (:meth:`newest`), which are read again for each new token. Caches would be wrong there: from the second block
        on, the cached values of a token depend on tokens that have left the context.

        Raises ``TrainingError`` if there are no tokens, if a mixer cannot decode token by token, and past ``seq_len``
        if positions are learned.
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
        """True if a mixer's rows for given tokens depend on the input's length. Measured once per kind of mixer."""
        d_model = self.readout[0].shape[1]
        return any(depends_on_length(mixer, d_model, self.seq_len) for mixer in self._mixers_by_kind().values())

    def _mixers_by_kind(self) -> dict[Hashable, nn.Module]:
        """One mixer of each kind in the model."""
        return {kind_of(block.mixer): block.mixer for block in reversed(self.blocks)}

    def newest(self, ids: Tensor) -> Tensor:
        """The newest ``seq_len`` of ids (B, T). The next token depends on these only.

        Raises ``TrainingError`` if ids are left out and the positions are learned.
        """
        self._check_positions(ids.shape[1])
        return ids[:, -self.seq_len :]

    def _embed(self, tokens: Tensor, first: int) -> Tensor:
        """Map ids (B, T) to vectors (B, T, D). The first id of a row is at position ``first``."""
        x, end = self.embedding(tokens), first + tokens.shape[1]
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
    """The warning for text that is longer than the context."""
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

    Past the context, each id depends on the newest ``seq_len`` tokens only (:meth:`GPT.decode` with ``slide``).

    Args:
        model: on any device; read, not changed.
        prompt: ids, at least one. For an empty text, use the end-of-text token.
        generator: source of the draws, on the device of the model.
        temperature: divides the logits; 0 takes the most probable id each time.
        top_k: draws only among this many most probable ids.
        vocab_size: ids from here on are padding of the embedding and never drawn.

    Raises ``ConfigError`` for an invalid setting. Raises ``TrainingError`` as :meth:`GPT.decode` does, and if the
    logits are not finite.
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
    """Draw an id from logits (V,) in float32. Raises ``TrainingError`` if they are not finite. See :func:`generate`."""
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
