"""Labels of former versions of madbench, and the labels that replace them."""

from __future__ import annotations

from madbench.errors import suggestion
from madbench.labels.diagnosis import SHOWN, point_at

PREFIX = "fla:"
"""The former prefix of the labels of layers of flash-linear-attention. Today these labels are names."""
NAMES = {
    "deltanet": "DeltaNet",
    "gated-deltanet": "GDN",
    "gated-deltaproduct": "DeltaProduct",
    "gla": "GLA",
    "gsa": "GSA",
    "hgrn": "HGRN",
    "hgrn2": "HGRN2",
    "kda": "KDA",
    "mamba2": "Mamba-2",
    "mamba3": "Mamba-3",
    "path": "PaTH",
    "retnet": "RetNet",
    "rwkv7": "RWKV-7",
}
"""Former to present label of each layer, both without a prefix."""


def label_now(text: str) -> str:
    """The label that replaces a label of a former version, such as ``GLA`` for ``fla:gla``. Otherwise empty."""
    name, exclamation = (text[:-1], "!") if text.endswith("!") else (text, "")
    now = NAMES.get(name.removeprefix(PREFIX).lower(), "") if name.startswith(PREFIX) else ""
    return now and f"{now}{exclamation}"


def message_of_renamed(text: str) -> str:
    """The error message for a label with the former prefix ``fla:``. Empty for other texts."""
    if now := label_now(text):
        return point_at(text, 0, f"{text} is the label {now} now")
    if not text.startswith(PREFIX):
        return ""
    hint = suggestion(text.removeprefix(PREFIX)[:SHOWN], NAMES.values())
    what = "layers of flash-linear-attention have labels without a prefix now, such as GLA"
    return point_at(text, 0, f"{what}{hint}")
