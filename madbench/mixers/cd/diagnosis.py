"""Why a text is no label of coefficient dynamics."""

from __future__ import annotations

from madbench.errors import LabelError
from madbench.labels.diagnosis import point_at
from madbench.mixers.cd.grammar import PREFIX


class InvalidLabel(LabelError):
    """A text outside the grammar. The message is worked out when it is shown."""

    def __str__(self) -> str:
        return point_at(self.args[0], len(PREFIX), "no label of coefficient dynamics")
