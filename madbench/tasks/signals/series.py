"""The task of forecasting a multivariate series whose channels follow each other at different lags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.config import check_at_least
from madbench.errors import ConfigError
from madbench.tasks.base import SPLITS, Split

if TYPE_CHECKING:
    import numpy as np

BURN_IN = 4  # number of time steps that are drawn before a window, in multiples of the longest lag


@dataclass(frozen=True)
class Series:
    """A setting of the forecasting task: windows of a series x_t[c] = a_c x_{t - l_c}[p(c)] + noise.

    x_t[c] is channel c at time t. The series is a vector autoregression with one coupling per channel. The permutation
    p, the distinct lags l_c from ``horizon`` to ``longest_lag``, and the signs of a_c are drawn once, with the seed
    ``world``. No lag is shorter than the horizon, so the best forecast is a_c times one number of the window, and its
    error is the noise.

    Each token is a time step. It has the channels, in units of their standard deviation, and a flag. The last
    ``horizon`` time steps are to be predicted: their flag is 1, and their channels are 0.
    """

    heading: ClassVar[str] = "Forecasting"
    title: ClassVar[str] = "multivariate series"
    description: ClassVar[str] = "Forecast a series whose channels follow each other at different lags."
    chance: ClassVar[float] = 0.0
    classes: ClassVar[int] = 0

    window: int = 32
    """Number of known time steps."""
    horizon: int = 4
    """Number of time steps to forecast."""
    num_channels: int = 4
    """Number of channels."""
    longest_lag: int = 24
    """The longest lag of a channel."""
    coupling: float = 0.95
    """|a_c|, above 0 and below 1: the weight, up to its sign, with which each channel repeats an earlier value of the
    channel that it follows. The rest of a channel's variance, 1 - |a_c|^2, is noise."""
    world: int = 0
    """The seed of couplings, lags and signs."""
    num_train_examples: int = 2000
    """Number of training windows."""
    num_validation_examples: int = 200
    """Number of windows for the evaluations of the curve."""
    num_test_examples: int = 500
    """Number of windows for the reported score."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "horizon", "num_channels", *(f"num_{split}_examples" for split in SPLITS))
        if not 0 < self.coupling < 1:
            raise ConfigError(f"coupling must be above 0 and below 1, got {self.coupling}")
        if self.longest_lag > self.window:
            raise ConfigError(f"longest_lag {self.longest_lag} exceeds the window of {self.window}")
        if self.longest_lag - self.horizon + 1 < self.num_channels:
            raise ConfigError(
                f"{self.num_channels} channels need as many lags from horizon {self.horizon} to longest_lag"
                f" {self.longest_lag}"
            )

    def count(self, split: Split) -> int:
        """The number of windows in ``split``."""
        count: int = getattr(self, f"num_{split}_examples")
        return count

    @property
    def length(self) -> int:
        """The number of tokens per input: ``window`` known time steps, and ``horizon`` time steps to predict."""
        return self.window + self.horizon

    @property
    def channels(self) -> int:
        """The number of real numbers per token: the channels of the series, and the flag."""
        return self.num_channels + 1

    def couplings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each channel c, as arrays (C,): the channel p(c) that c follows, the lag l_c, and the weight a_c."""
        import numpy as np

        rng = np.random.default_rng([self.world, 2602])
        lags = rng.choice(np.arange(self.horizon, self.longest_lag + 1), self.num_channels, replace=False)
        return rng.permutation(self.num_channels), lags, self.coupling * rng.choice([-1.0, 1.0], self.num_channels)

    def data(self, split: Split, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The N windows of ``split``, as float32 arrays: tokens, and time steps to predict.

        The tokens are (N, ``length``, ``channels``), and the time steps are (N, ``horizon``, ``num_channels``).
        """
        import numpy as np

        followed, lags, weights = self.couplings()
        rng = np.random.default_rng([seed, SPLITS.index(split), 28])
        before = BURN_IN * self.longest_lag
        noise = rng.standard_normal((before + self.length, self.count(split), self.num_channels))
        x = noise * (1 - self.coupling**2) ** 0.5
        x[: self.longest_lag] = noise[: self.longest_lag]  # variance one, which every channel then keeps
        for t in range(self.longest_lag, len(x)):
            x[t] += weights * x[t - lags, :, followed].T
        windows = x[before:].swapaxes(0, 1).astype(np.float32)
        tokens: np.ndarray = np.zeros((len(windows), self.length, self.channels), np.float32)
        tokens[:, : self.window, :-1], tokens[:, self.window :, -1] = windows[:, : self.window], 1.0
        return tokens, windows[:, self.window :]

    def ceiling(self, seed: int) -> float:
        """The share of the variance of the test windows that the best forecast explains."""
        import numpy as np

        tokens, targets = self.data("test", seed)
        followed, lags, weights = self.couplings()
        moments = np.arange(self.horizon)[:, None] + self.window - lags
        best = weights * tokens[:, moments, followed]
        return float(1 - np.square(targets - best).mean() / np.square(targets).mean())
