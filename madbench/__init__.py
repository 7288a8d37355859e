"""madbench: which part of an attention-like operator does the work?

    >>> import madbench
    >>> str(madbench.parse("HyperGLU"))
    'G-cg-q-12o'

``parse`` reads a label and ``build`` makes its mixer, a ``torch.nn.Module``. ``run`` trains labels on the MAD tasks and
returns the scores. ``run_language_model`` trains them as language models and returns the loss curves. ``sweep`` trains
a grid of labels and settings on the MAD tasks and as language models. ``open`` opens a results folder:
``open(results).select(labels)`` has the methods ``table``, ``compare``, ``attribute``, ``audit``, ``findings``,
``plot`` and ``frame``. The functions ``madbench.table``, ``madbench.compare`` and so on return frames of stored
results; ``plot`` returns a Matplotlib figure. ``load`` returns a trained model. ``verify`` checks the properties of a
mixer. Their errors are subclasses of ``MadbenchError``. Importing madbench does not import torch, numpy or pandas.
"""

from __future__ import annotations

from madbench._version import __version__ as __version__

TYPE_CHECKING = False  # without an import of typing, so that Ctrl-C finds little to interrupt before main()
if TYPE_CHECKING:
    from madbench.api.checks import verify
    from madbench.api.stored import attribute, audit, compare, findings, open, plot, table
    from madbench.api.training import plan, run, run_language_model, sweep
    from madbench.errors import MadbenchError
    from madbench.labels import parse
    from madbench.mixers import build
    from madbench.store.trained import load

__all__ = [
    "MadbenchError", "attribute", "audit", "build", "compare", "findings", "load", "open", "parse", "plan", "plot",
    "run", "run_language_model", "sweep", "table", "verify",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker knows the names above, and should report any other name

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'madbench' has no attribute {name!r}")
        from importlib import import_module

        from madbench.mixers.random_state import kept_random_state

        home = {"MadbenchError": "errors", "build": "mixers", "load": "store.trained", "parse": "labels"}.get(
            name, "api"
        )
        with kept_random_state():  # some libraries draw a number when they are imported
            module = import_module(f"madbench.{home}")
        return getattr(module, name)


def __dir__() -> list[str]:
    return [*(name for name in globals() if name.startswith("__")), *__all__]
