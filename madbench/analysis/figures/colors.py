"""Shades of a color, and distinct colors for a figure, by the perceived distance of colors."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.colors import to_hex, to_rgb

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""``_TO_CONES`` and ``_TO_LAB`` are the matrices of the color space Oklab (Ottosson 2020). The first one maps linear
RGB to cone responses, and the second one maps the cube roots of these to Oklab."""
_DARKEST, _LIGHTEST = 0.44, 0.775  # lightness that is visible on a dark page and on white paper
_APART = 0.04  # the smallest distance in Oklab of two distinguishable colors
_TRIED = 60


def oklab(color: str) -> np.ndarray:
    """A color in Oklab, as an array (3,): lightness and two coordinates of hue.

    A distance of about 0.02 between two colors is just noticeable.
    """
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab: np.ndarray = _TO_LAB @ np.cbrt(_TO_CONES @ linear)
    return lab


@functools.cache
def shade(color: str, lightness: float, turn: float) -> str:
    """``color`` with ``lightness`` added to its lightness in Oklab, and with its hue rotated by ``turn`` degrees.

    Lightness is cyclic between :data:`_DARKEST` and :data:`_LIGHTEST`: above the lightest it continues from the
    darkest. The saturation is reduced if a screen could not show the color. If ``lightness`` and ``turn`` are 0,
    ``color`` is returned, otherwise a text such as ``#1f77b4``.
    """
    if not lightness and not turn:
        return color
    light, a, b = oklab(color)
    light = _DARKEST + (light - _DARKEST + lightness) % (_LIGHTEST - _DARKEST)
    cosine, sine = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    hue = np.array([cosine * a - sine * b, sine * a + cosine * b])
    for share in np.linspace(1, 0, 41):  # the most saturated color of this hue on a screen
        linear = np.linalg.solve(_TO_CONES, np.linalg.solve(_TO_LAB, [light, *share * hue]) ** 3)
        if linear.min() > -1e-4 and linear.max() < 1 + 1e-4:
            break
    linear = linear.clip(0, 1)
    red, green, blue = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return to_hex((red, green, blue))


def distinct_shade(used_colors: Iterable[str], color: str) -> str:
    """``color`` if it differs visibly from all ``used_colors``, otherwise the first of its shades that does.

    If no shade differs from all ``used_colors``, the shade with the largest distance from them is returned.
    """
    places = [oklab(other) for other in used_colors]
    if not places:
        return color
    shades = [shade(color, 0.618 * i % 1, 137.5 * (i // 5)) for i in range(_TRIED)]
    distances = [min(np.linalg.norm(oklab(candidate) - place) for place in places) for candidate in shades]
    return next(
        (candidate for candidate, distance in zip(shades, distances) if distance >= _APART),
        shades[np.argmax(distances)],
    )


def distinct_colors(colors: Sequence[str], count: int) -> list[str]:
    """A list of ``count`` colors: first the given ``colors``, then shades of them.

    Each shade differs as visibly as possible from all colors before it.
    """
    chosen_colors: list[str] = []
    for i in range(count):
        chosen_colors.append(colors[i] if i < len(colors) else distinct_shade(chosen_colors, colors[i % len(colors)]))
    return chosen_colors
