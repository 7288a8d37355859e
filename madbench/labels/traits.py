"""Properties of mixers for models, optimizers and suites, stated by a mixer's family and never guessed from names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from madbench.errors import ConfigError

SOMETIMES_UNUSED = ("n_head",)
"""Settings of the model around the mixer that some mixers do not use (``Traits.has_heads``). Only the code of a label's
family tells if its mixers use them."""


@dataclass(frozen=True)
class Traits:
    """The properties of a label's mixers that models, optimizers and suites need. The defaults describe a plain mixer.

    Fields that list parameters use the names of ``named_parameters()``. A name also stands for all parameters below it,
    such as ``name.weight``.
    """

    outputs: tuple[str, ...] | None = None
    """Weights of linear maps that write to the residual stream. Deep models initialize them smaller. If None, they are
    found by measurement: a row or column of such a weight affects one output channel only, and linearly."""
    without_decay: tuple[str, ...] = ()
    """Parameters that have two or more dimensions but no weight decay. Parameters with fewer dimensions never have
    it."""
    keeps_init: tuple[str, ...] = ()
    """Linear maps whose initialization is part of the operator's definition. The fidelity ``published`` initializes all
    other linear maps by torch's default."""
    settings: tuple[str, ...] | None = None
    """Settings of the family that affect the mixer, directly or through its ranks. If None, all settings do."""
    has_heads: bool = True
    """True if ``n_head`` changes the mixer."""
    head_groups: int = 1
    """The number of equal groups into which the heads are divided. A mixer may have more than ``n_head`` heads to make
    the groups equal."""
    has_even_heads: bool = False
    """True if every head has an even width, because its channels are rotated in pairs."""
    start_settings: tuple[str, ...] = ()
    """Settings that affect only the initial weights of linear maps that are not in ``keeps_init``."""
    shorter_settings: tuple[str, ...] = ()
    """Settings that have no effect if every input is ``max_len`` tokens long."""
    may_grow: bool = False
    """True if mixing coefficients can grow with the distance between tokens. The mixer then has a method
    ``coefficients(x)``, whose result has the coefficients as ``a``, and training curves record the largest."""
    stacked_path: str = ""
    """Value of the mixer's ``path`` while several models train as one (``torch.func.vmap``). If empty, the value is
    kept."""
    is_stackable: bool = False
    """True if all paths but ``dense`` and ``chunked`` can compute several models at once (``torch.func.vmap``). The
    mixer's ``is_stacked`` is then set."""
    trains_alone: bool = False
    """True if no two models with this mixer train as one, for example because ``torch.func.vmap`` is untested."""
    is_replayable: bool = False
    """True if a forward pass calls the same operators for all inputs of one shape, and depends only on its inputs and
    parameters. Such a pass may be recorded once and replayed (:mod:`madbench.training.replay`)."""
    shares_values: bool = False
    """True if the first mixer of a label in a model hands values to later mixers of this label. Their ``forward``,
    ``prefill`` and ``step`` then take these values as ``shared`` (:mod:`madbench.mixers.sharing`)."""
    has_tables: bool = False
    """True if each position up to ``max_len`` has its own parameters. A shorter input uses those of its positions."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Parameter group, such as ``mixer gates``, by parameter name. The first match counts. A parameter without a match
    is in ``mixer projections``."""

    def __post_init__(self) -> None:
        for name in ("outputs", "without_decay", "keeps_init", "settings", "start_settings"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, str) or not all(isinstance(each, str) for each in value)):
                raise ConfigError(f"traits: {name}: expected names, such as ('o.weight',), got {value!r}")
