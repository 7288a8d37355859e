"""The library of matrix products on a CPU, for the records of runs: their bits depend on it."""

from __future__ import annotations

import os
from dataclasses import replace

from madbench.jobs import Record

DETAIL = "products"
"""The key of the library among the details of a record."""
VARIABLES = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Environment variables that choose the instructions of a library, and so the rounding of its products."""


def product_library() -> str:
    """The library of float32 matrix products on this CPU, such as ``oneDNN for large products, else MKL``.

    Environment variables that change the rounding follow.
    """
    import torch

    from madbench.mixers.products import onednn_is_faster

    usual = "MKL" if torch.backends.mkl.is_available() else "torch's BLAS"
    library = f"oneDNN for large products, else {usual}" if onednn_is_faster() else usual
    return ", ".join([library, *(f"{name}={os.environ[name][:60]}" for name in VARIABLES if name in os.environ)])


def with_products(record: Record) -> Record:
    """Return ``record`` with the library in its details, if it is the record of a run on a CPU.

    A record with the name of a processor is one of a CPU. Call this function in the process that trained.
    """
    if "processor" not in record.details:
        return record
    return replace(record, details={**record.details, DETAIL: product_library()})
