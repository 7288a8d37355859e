"""The counted costs of mixers: parameters, FLOPs per token, and the size of the decoding state.

The page on budgets says what each family counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from madbench.errors import BudgetError
from madbench.labels import family_of
from madbench.mixers import Allocation, state_size
from madbench.mixers.sequence import MixerSequence


@dataclass(frozen=True)
class CountedCosts:
    """The counted costs of one mixer, or of several mixers together."""

    parameters: int
    flops_per_token: float
    """FLOPs of the forward pass per token. A multiply-add counts as two."""
    state: int | None
    """The count of numbers that decoding carries from token to token. None if it is unknown."""
    unknown: str = ""
    """The reason why ``state`` is None. Empty if it is known."""


def count_costs(mixers: Allocation | MixerSequence, seq_len: int, all_pairs: bool = False) -> CountedCosts:
    """The costs of a mixer, or of all mixers of a model, on ``seq_len`` tokens.

    FLOPs depend on the number of pairs of a token and a token that it sees. With T = ``seq_len``, each token has T
    pairs if ``all_pairs`` is true. Otherwise only causal pairs are counted, which are (T + 1) / 2 per token on average.
    """
    blocks: Sequence[tuple[Allocation, int]] = mixers.kinds if isinstance(mixers, MixerSequence) else [(mixers, 1)]
    flops = sum(count * flops_of(block, seq_len, all_pairs) for block, count in blocks)
    state, unknown = None, ""
    try:
        state = sum(count * state_size(block, seq_len) for block, count in blocks)
    except BudgetError as error:
        unknown = str(error)
    return CountedCosts(sum(count * block.total for block, count in blocks), flops, state, unknown)


def paper_total(mixer: Allocation) -> int:
    """The number of a mixer's parameters, counted as in the paper of its family. By default all parameters."""
    total: int = getattr(mixer, "paper_total", mixer.total)  # an optional member of allocations
    return total


def flops_of(mixer: Allocation, seq_len: int, all_pairs: bool = False) -> float:
    """Forward FLOPs per token of a mixer on ``seq_len`` tokens; for ``all_pairs`` see :func:`count_costs`.

    The allocation of an always causal family counts causal pairs only. For all pairs of T tokens, its FLOPs at 2 T - 1
    tokens are returned, because a token has T causal pairs on average there. For a user's module, the operations that
    torch executes are counted, and ``all_pairs`` has no effect.
    """
    family = family_of(mixer.label)
    if not all_pairs or family.names_code:
        return mixer.flops_per_token(seq_len)
    if family.is_bidirectional:
        not_causal = {"causal": False}
        return mixer.flops_per_token(seq_len, **not_causal)
    return mixer.flops_per_token(2 * seq_len - 1)
