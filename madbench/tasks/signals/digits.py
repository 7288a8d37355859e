"""The task of recognizing a handwritten digit in an image, which is read as a sequence of patches.

``digits.gz`` holds 1,797 digits of 13 writers, the test set of *Optical Recognition of Handwritten Digits* (E. Alpaydin
and C. Kaynak, UCI Machine Learning Repository, 1998, doi 10.24432/C50P49, license CC BY 4.0). A record is 65 bytes: 8
by 8 pixels from 0 to 16, row by row, then the digit.
"""

from __future__ import annotations

import functools
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from madbench.config import check_at_least
from madbench.errors import ConfigError
from madbench.tasks.base import SPLITS, Split

if TYPE_CHECKING:
    import numpy as np

FILE = Path(__file__).with_name("digits.gz")
SIDE, LARGEST, IMAGES = 8, 16, 1797


@dataclass(frozen=True)
class Digits:
    """A setting of the task of recognizing digits: images of 8 by 8 pixels are cut into square patches, row by row.

    Each token is a patch. Its patch^2 channels are pixels from 0 to 1. The seed determines which images are in which
    split. No two splits share an image.
    """

    heading: ClassVar[str] = "Digits"
    title: ClassVar[str] = "handwritten digits"
    description: ClassVar[str] = "Recognize the digit in an image of 8 by 8 pixels, read as a row of patches."
    classes: ClassVar[int] = 10
    chance: ClassVar[float] = 0.1
    horizon: ClassVar[int] = 0

    patch: int = 2
    """The side of a patch in pixels."""
    num_train_examples: int = 1297
    """Number of training images."""
    num_validation_examples: int = 200
    """Number of images for the evaluations of the curve."""
    num_test_examples: int = 300
    """Number of images for the reported accuracy."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "patch", *(f"num_{split}_examples" for split in SPLITS))
        if SIDE % self.patch:
            raise ConfigError(f"patch must divide {SIDE}, got {self.patch}")
        if (asked := sum(map(self.count, SPLITS))) > IMAGES:
            raise ConfigError(f"{asked:,} images in three splits; there are {IMAGES:,}")

    def count(self, split: Split) -> int:
        """The number of images in ``split``."""
        count: int = getattr(self, f"num_{split}_examples")
        return count

    @property
    def length(self) -> int:
        """The number of tokens (patches) per image."""
        return (SIDE // self.patch) ** 2

    @property
    def channels(self) -> int:
        """The number of pixels per token (patch)."""
        return self.patch**2

    def data(self, split: Split, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The N images of ``split``: patches, float32 (N, length, channels), and their digits, int64 (N,)."""
        import numpy as np

        order = np.random.default_rng([seed, 28]).permutation(IMAGES)
        ends = np.cumsum([self.count(each) for each in SPLITS])
        places = np.split(order, ends)[SPLITS.index(split)]
        pixels, digits = (array[places] for array in images())
        across = SIDE // self.patch
        patches = pixels.reshape(-1, across, self.patch, across, self.patch).swapaxes(2, 3)
        return (patches.reshape(-1, self.length, self.channels) / LARGEST).astype(np.float32), digits.astype(np.int64)

    def ceiling(self, seed: int) -> float:
        """The best possible accuracy: 1."""
        return 1.0


@functools.cache
def images() -> tuple[np.ndarray, np.ndarray]:
    """All N = 1,797 images: pixels (N, 8, 8), integers from 0 to 16, and their digits (N,)."""
    import numpy as np

    records = np.frombuffer(gzip.decompress(FILE.read_bytes()), np.uint8).reshape(-1, SIDE * SIDE + 1)
    return records[:, :-1].reshape(-1, SIDE, SIDE), records[:, -1]
