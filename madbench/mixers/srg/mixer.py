"""A protocol for type annotations of S/R/G mixers, in modules that cannot import their class.

The class :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP` imports these modules itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from madbench.mixers.srg.budget import SrgAllocation
    from madbench.mixers.srg.grammar import SrgLabel
    from madbench.mixers.srg.parts import Contrast, Projected, SequenceMixing, ShortConv


class DynamicMLPLike(Protocol):
    """The attributes and methods of :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP` that other modules use."""

    allocation: SrgAllocation
    label: SrgLabel
    path: str
    causal: bool
    chunk: int
    kernel_problem: str
    is_stacked: bool
    uses_sdpa: bool
    has_tiles: bool
    has_kernel: bool
    has_short_steps: bool
    has_sdpa_steps: bool
    by_lag: bool
    is_from_end: bool
    n_head: int
    query_heads: int
    max_len: int
    scale: float
    window: int
    has_slots_of_window: bool
    register_slots: int
    register_place: str
    rope: str
    rope_order: str
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    o: nn.Linear
    k_conv: ShortConv | None
    v_conv: ShortConv | None
    qk_gate: nn.Linear | None
    vo_gate: nn.Linear | None
    mix1: SequenceMixing | None
    mix2: SequenceMixing | None
    sink: nn.Parameter | None
    contrast: Contrast | None

    def named_modules(self) -> Iterable[tuple[str, nn.Module]]: ...
    def parameters(self) -> Iterable[nn.Parameter]: ...
    def check_length(self, length: int) -> None: ...
    def project(
        self, x: Tensor, position: int, before: Tensor | None = None, angles: tuple[Tensor, Tensor] | None = None
    ) -> Projected: ...
    def for_each_head(self, p: Projected) -> Projected: ...
    def attend(self, p: Projected, first_row: int, is_step: bool = False) -> Tensor: ...
    def exclude(self, o: Tensor, p: Projected) -> Tensor: ...
    def read_out(self, o: Tensor, x: Tensor) -> Tensor: ...
    def register_values(self) -> Tensor: ...
    def __call__(self, x: Tensor, projected: Projected | None = None) -> Tensor: ...
