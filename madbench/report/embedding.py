"""JSON inside HTML."""

from __future__ import annotations

import json
from typing import Any

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a ``<script>`` element, or a line of one, by their JSON escapes."""


def embedded_json(value: Any) -> str:
    """JSON that may stand in a ``<script>`` element, whatever text is in it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return text
