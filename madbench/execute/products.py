"""The library that computes matrix products on a CPU.

Records of runs name it, because it decides how products round.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from madbench.jobs import Record

DETAIL: Final = "products"
"""The key under which the library of matrix products is stored in the details of a record."""
VARIABLES = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Environment variables that choose the instructions of a library, and so how its products round."""


def product_library() -> str:
    """The library of float32 matrix products on this CPU, such as ``oneDNN for large products, else MKL``.

    If environment variables that change the rounding are set, they follow, such as ``MKL, MKL_CBWR=AVX2``.
    """
    import torch

    from madbench.mixers.ops.products import onednn_is_faster

    usual = "MKL" if torch.backends.mkl.is_available() else "torch's BLAS"
    library = f"oneDNN for large products, else {usual}" if onednn_is_faster() else usual
    return ", ".join([library, *(f"{name}={os.environ[name][:60]}" for name in VARIABLES if name in os.environ)])


def with_products(record: Record) -> Record:
    """Return ``record`` with the library of matrix products added to its details, if the run was trained on a CPU.

    Only runs trained on a CPU have the detail ``processor``. Call this function in the process that trained.
    """
    if "processor" not in record.details:
        return record
    return replace(record, details={**record.details, DETAIL: product_library()})
