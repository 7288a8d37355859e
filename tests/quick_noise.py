"""The noise model of the profile quick."""

from __future__ import annotations

from madbench.analysis.noise_model import noise_models

(QUICK_NOISE,) = (model for model in noise_models() if model.name.startswith("quick-"))
