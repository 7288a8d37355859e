"""The mixers of a model's blocks, in order: their labels, their costs, and the modules.

All blocks of a model have the same mixer, unless the family of its label defines ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from madbench.errors import FamilyError
from madbench.jobs import Budget
from madbench.labels import Label, as_label, family_of
from madbench.mixers import Allocation, Layer, build, solve, state_size, used_settings

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer


@dataclass(frozen=True)
class MixerSequence:
    """The allocations (ranks and costs) of a model's mixers, one per block. Its costs are sums over the blocks."""

    blocks: tuple[Allocation, ...]

    @classmethod
    def from_mixers(cls, mixers: Iterable[Mixer]) -> MixerSequence:
        """The sequence of the allocations of built mixers, in order.

        Modules without an allocation, which no family built, are left out.
        """
        return cls(tuple(mixer.allocation for mixer in mixers if getattr(mixer, "allocation", None)))

    @property
    def kinds(self) -> list[tuple[Allocation, int]]:
        """The different allocations in the order in which they first occur, each with its number of blocks."""
        kinds: list[tuple[Allocation, int]] = []
        for block in self.blocks:
            place = next((i for i, (kind, _) in enumerate(kinds) if kind is block or kind == block), len(kinds))
            count = kinds.pop(place)[1] if place < len(kinds) else 0
            kinds.insert(place, (block, count + 1))
        return kinds

    @property
    def total(self) -> int:
        """The number of parameters of all mixers."""
        return sum(count * block.total for block, count in self.kinds)

    @property
    def target(self) -> int:
        """The sum of the budgets of all mixers, in parameters."""
        return sum(count * block.target for block, count in self.kinds)

    @property
    def ratio(self) -> float:
        """The quantity that the budget limits, such as parameters or FLOPs, divided by its limit.

        For a budget in parameters it is ``total / target``.
        """
        amounts = ((count, block.size.rule, block) for block, count in self.kinds)
        amount, target = map(sum, zip(*((n * rule.amount(each), n * rule.target(each)) for n, rule, each in amounts)))
        return amount / target

    @property
    def ranks(self) -> dict[str, int] | list[dict[str, int]]:
        """The ranks that all blocks share, or a list with the ranks of each block if they differ."""
        ranks = [dict(block.ranks) for block in self.blocks]
        return ranks[0] if all(each == ranks[0] for each in ranks) else ranks

    def flops_per_token(self, seq_len: int, **causal: bool) -> float:
        """Forward FLOPs per token of all mixers on ``seq_len`` tokens. A multiply-add counts as two.

        ``causal=False`` counts all pairs of tokens; only bidirectional families accept it.
        """
        return sum(count * block.flops_per_token(seq_len, **causal) for block, count in self.kinds)

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to the decoding caches of all mixers.

        ``bytes_per_element`` is the size of one number.
        """
        return sum(count * block.state_bytes_per_token(bytes_per_element) for block, count in self.kinds)

    def state(self, seq_len: int) -> int:
        """The count of numbers in the decoding states of all mixers after ``seq_len`` tokens.

        Raises ``UnknownStateError`` if a mixer's family does not state the size of its decoding state.
        """
        return sum(count * state_size(block, seq_len) for block, count in self.kinds)


def block_labels(label: str | Label, count: int) -> tuple[Label, ...]:
    """The labels of the mixers of a model's ``count`` blocks, in order.

    They are equal unless ``label`` combines several labels, as a hybrid does. Raises ``FamilyError`` if the label's
    family does not return ``count`` labels.
    """
    label = as_label(label)
    family = family_of(label)
    labels = tuple(family.blocks(label, count))
    if len(labels) != count:
        raise FamilyError(f"family {family.name!r}: blocks of {str(label)!r}: {len(labels)} labels for {count} blocks")
    return labels


def block_period(label: str | Label) -> int:
    """The number of blocks after which the mixers of a label repeat. It is 1 unless the label is a hybrid."""
    label = as_label(label)
    return family_of(label).block_period(label)


def solve_blocks(
    label: str | Label,
    count: int,
    d_model: int,
    n_head: int = 2,
    max_len: int = 1024,
    budget: Budget = "strict",
    **settings: Any,
) -> MixerSequence:
    """The allocations of the mixers of a model with ``count`` blocks.

    ``settings`` are settings of the label's family. Raises the errors of :func:`madbench.mixers.solve`.
    """
    solved: dict[tuple[Label, Layer], Allocation] = {}
    blocks = []
    for part, layer, own in _parts(label, count, settings):
        if (part, layer) not in solved:
            solved[part, layer] = solve(part, d_model, n_head, max_len, budget, layer=layer, **own)
        blocks.append(solved[part, layer])
    return MixerSequence(tuple(blocks))


def build_blocks(
    label: str | Label, count: int, d_model: int, max_len: int, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> Iterator[Mixer]:
    """Yield the mixers of ``count`` blocks in order. Each mixer is built when the iterator reaches it.

    ``options`` are further arguments of :func:`madbench.mixers.build`. ``settings`` are settings of the label's family.
    """
    for part, layer, own in _parts(label, count, settings):
        yield build(part, d_model, max_len, layer=layer, **options, **own)


def _parts(
    label: str | Label, count: int, settings: Mapping[str, Any]
) -> Iterator[tuple[Label, Layer, dict[str, Any]]]:
    """Yield the label, the place in the model and the settings of the mixer of each block.

    The place is ``Layer()`` if the mixer does not depend on it. The settings are those of ``settings`` that the mixer
    uses.
    """
    label = as_label(label)
    labels: Sequence[Label] = block_labels(label, count)
    for index, part in enumerate(labels):
        takes_layer = family_of(part).takes_layer(part)
        read = settings if part == label else used_settings(part)
        own = {name: settings[name] for name in read if name in settings}
        yield part, Layer(index, count, labels[:index].count(part)) if takes_layer else Layer(), own
