"""The processes that ``torchrun`` starts to train one run together, as their environment describes them.

Commands call these functions before they know whether anything is left to train, so this module does not import torch.
"""

from __future__ import annotations

import os

FROM_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
"""The environment variables that torchrun sets."""


def is_distributed() -> bool:
    """True if torchrun started this process."""
    return os.environ.keys() >= FROM_TORCHRUN


def planned_size() -> int:
    """The number of processes that torchrun started, even before they join a process group. 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def is_first() -> bool:
    """True if this process writes files and shows progress: its rank is 0, or it is the only process."""
    return not is_distributed() or int(os.environ["RANK"]) == 0
