"""The named operators, each in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from madbench.mixers.named.comba import Comba
from madbench.mixers.named.deltaformer import DeltaFormer
from madbench.mixers.named.deltanet import DeltaNet
from madbench.mixers.named.deltaproduct import DeltaProduct
from madbench.mixers.named.fox import FoX
from madbench.mixers.named.gated_attention import GatedAttention
from madbench.mixers.named.gdn import GDN
from madbench.mixers.named.gdn2 import GDN2
from madbench.mixers.named.gla import GLA
from madbench.mixers.named.gsa import GSA
from madbench.mixers.named.hgrn import HGRN
from madbench.mixers.named.hgrn2 import HGRN2
from madbench.mixers.named.kda import KDA
from madbench.mixers.named.log_linear import LogLinearMamba2
from madbench.mixers.named.mamba2 import Mamba2
from madbench.mixers.named.mamba3 import Mamba3
from madbench.mixers.named.mdn import MDN
from madbench.mixers.named.mesanet import MesaNet
from madbench.mixers.named.mla import MLA
from madbench.mixers.named.mlstm import MLSTM
from madbench.mixers.named.moba import MoBA
from madbench.mixers.named.nsa import NSA
from madbench.mixers.named.operator import Operator
from madbench.mixers.named.parallax import Parallax
from madbench.mixers.named.path_attention import PaTH
from madbench.mixers.named.pgdn import PGDN
from madbench.mixers.named.retnet import RetNet
from madbench.mixers.named.rwkv7 import RWKV7
from madbench.mixers.named.shortconv import ShortConv
from madbench.mixers.named.stickbreaking import StickBreaking

_ALL: tuple[type[Operator], ...] = (
    KDA,
    GDN,
    GDN2,
    DeltaNet,
    DeltaProduct,
    Comba,
    PGDN,
    MDN,
    MesaNet,
    Mamba2,
    Mamba3,
    LogLinearMamba2,
    MLSTM,
    GLA,
    GSA,
    HGRN,
    HGRN2,
    RetNet,
    RWKV7,
    ShortConv,
    GatedAttention,
    MLA,
    FoX,
    PaTH,
    StickBreaking,
    DeltaFormer,
    Parallax,
    MoBA,
    NSA,
)
OPERATORS: Mapping[str, type[Operator]] = {operator.name: operator for operator in _ALL}
"""All operators, by name."""
