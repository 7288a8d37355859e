"""Language models as those of Hugging Face's transformers.

    import madbench
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("exported")  # of madbench lm export RUN --format hf
    tokenizer = AutoTokenizer.from_pretrained("exported")

transformers has no entry point for packages that bring a model, and madbench loads neither it nor torch by itself. So
importing madbench has :data:`MODULES` registered once transformers imports its own tables of models.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MODULES = {
    "transformers.models.auto.configuration_auto": "madbench.huggingface.configuration",
    "transformers.models.auto.modeling_auto": "madbench.huggingface.modeling",
}
"""Modules of transformers, and ours that registers with each."""


def register_with_transformers() -> None:
    """Registers the model type: now with what is imported of transformers, and later with the rest."""
    for theirs, ours in MODULES.items():
        if theirs in sys.modules:
            importlib.import_module(ours)
    if not MODULES.keys() <= sys.modules.keys() and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the modules of transformers as Python would, to be told when they have been imported."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, MODULES[name])
        return spec


class _Loader:
    """Loads a module as its own loader does, then imports ``following``."""

    def __init__(self, loader: Loader, following: str):
        self.loader, self.following = loader, following

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        importlib.import_module(self.following)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
