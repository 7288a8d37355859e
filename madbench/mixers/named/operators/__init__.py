"""The named operators by name. Each has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from madbench.mixers.named.operator import Operator
from madbench.mixers.named.operators.comba import Comba
from madbench.mixers.named.operators.deltaformer import DeltaFormer
from madbench.mixers.named.operators.deltanet import DeltaNet
from madbench.mixers.named.operators.deltaproduct import DeltaProduct
from madbench.mixers.named.operators.fox import FoX
from madbench.mixers.named.operators.gated_attention import GatedAttention
from madbench.mixers.named.operators.gdn import GDN
from madbench.mixers.named.operators.gdn2 import GDN2
from madbench.mixers.named.operators.gla import GLA
from madbench.mixers.named.operators.gsa import GSA
from madbench.mixers.named.operators.hgrn import HGRN
from madbench.mixers.named.operators.hgrn2 import HGRN2
from madbench.mixers.named.operators.kda import KDA
from madbench.mixers.named.operators.log_linear import LogLinearMamba2
from madbench.mixers.named.operators.mamba2 import Mamba2
from madbench.mixers.named.operators.mamba3 import Mamba3
from madbench.mixers.named.operators.mdn import MDN
from madbench.mixers.named.operators.mesanet import MesaNet
from madbench.mixers.named.operators.mla import MLA
from madbench.mixers.named.operators.mlstm import MLSTM
from madbench.mixers.named.operators.moba import MoBA
from madbench.mixers.named.operators.nsa import NSA
from madbench.mixers.named.operators.parallax import Parallax
from madbench.mixers.named.operators.path_attention import PaTH
from madbench.mixers.named.operators.pgdn import PGDN
from madbench.mixers.named.operators.retnet import RetNet
from madbench.mixers.named.operators.rwkv7 import RWKV7
from madbench.mixers.named.operators.shortconv import ShortConv
from madbench.mixers.named.operators.stickbreaking import StickBreaking

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
