"""The widths of named layers, and lists of widths from which the budget chooses."""

from __future__ import annotations

from dataclasses import dataclass

from madbench.mixers.ranks import WIDE_MODEL, WIDE_VO_STEP


@dataclass(frozen=True)
class Dims:
    """The widths of a layer: the channels of the model, and the channels of keys and values per head."""

    d: int
    """Width of the model."""
    heads: int
    key: int
    """Key channels per head."""
    value: int
    """Value channels per head."""

    @property
    def key_dim(self) -> int:
        """The number of key channels of all heads."""
        return self.heads * self.key

    @property
    def value_dim(self) -> int:
        """The number of value channels of all heads."""
        return self.heads * self.value


def width_steps(d: int) -> tuple[int, ...]:
    """The steps in which the widths of a head are tried in a model of width d, in order of preference.

    From d = 256 on, the first step is 8, which GPUs need for full speed. Finer steps follow for narrow heads, for which
    multiples of 8 would leave much of the budget unused. For d below 256, the only step is 1.
    """
    return (WIDE_VO_STEP, 4, 2, 1) if d >= WIDE_MODEL else (1,)


def widths(step: int, most: int) -> range:
    """The multiples of ``step`` up to ``most``. ``step`` itself is included even if it exceeds ``most``."""
    return range(step, max(most, step) + 1, step)


def equal_or_wider(d: int, heads: int, step: int, most: int) -> list[Dims]:
    """Widths with at most ``most`` key channels per head. Values are as wide as keys, or one step wider.

    Key channels are multiples of ``step``. d is the width of the model.
    """
    return [Dims(d, heads, width, width + wider) for width in widths(step, most) for wider in (0, step)]


def keys_of_half(d: int, heads: int, step: int) -> list[Dims]:
    """Widths with d / 2 key channels, summed over the heads, for a model of width d.

    The value channels of a head are the multiples of ``step`` up to 2 d / ``heads``.
    """
    key = max(1, d // (2 * heads))
    return [Dims(d, heads, key, value) for value in widths(step, 2 * d // heads)]


def wider_values(d: int, heads: int, step: int, key_step: int) -> list[tuple[int, int]]:
    """Pairs (key, value) of channels per head, with keys of at most ``d // heads`` channels in a model of width ``d``.

    The key widths are the multiples of ``key_step`` or of ``step``, whichever is larger. The first multiple is always
    included. For each key width, the values begin at twice this width and become narrower by ``step``. They end at 6
    ``step`` below the first value, or at the key width if this is larger.
    """
    key_step = max(key_step, step)
    keys = widths(key_step, d // heads)
    return [(key, value) for key in keys for value in range(2 * key, max(key, 2 * key - 6 * step) - 1, -step)]


def widths_near_double(d: int, heads: int, step: int, key_cost: int, value_cost: int) -> list[Dims]:
    """Widths whose values are 1 to 3 times as wide as keys, in ascending order of parameters.

    ``key_cost`` is the number of linear maps to keys, and ``value_cost`` that to values. Among widths with equally many
    parameters, those with values nearest to twice the keys come last, because the last that fits the budget is taken.
    The widths of values are multiples of ``step``, and those of keys multiples of half a step.
    """
    key_step = max(1, step // 2)
    keys = range(key_step, max(step, d // heads) + 1, key_step)
    pairs = [(key, value) for key in keys for value in range(step, 3 * key + 1, step) if value >= key]
    pairs.sort(key=lambda pair: (key_cost * pair[0] + value_cost * pair[1], -abs(pair[1] - 2 * pair[0])))
    return [Dims(d, heads, key, value) for key, value in pairs]


def even_keys(d: int, heads: int, step: int) -> list[Dims]:
    """Widths with an even number of key channels, in ascending order of keys plus values.

    Values are as wide as keys, or narrower by ``step``. If ``step`` is 1, they can also be one or two channels wider.
    """
    key_step = max(2, step)
    pairs = (
        (key, value)
        for key in widths(key_step, 2 * d // heads)
        for value in range(key - step, key + 2 * key_step - step, step)
    )
    return [Dims(d, heads, key, value) for key, value in pairs if value > 0]
