"""Digests of the job and of the saved weights in the ``config.json`` of an exported model.

``save_pretrained`` writes both digests, so a fine-tuned copy has the digest of its own weights. Loading compares the
digests with the job in ``config.json`` and with the files of weights. This detects damage and accidental changes. It
does not protect against people, who can also write a new digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from transformers.modeling_utils import load_state_dict
from transformers.utils import logging

from madbench.config import short_repr
from madbench.errors import StoreError
from madbench.training.checkpoints import tensors_digest

ADVICE = "copy the folder again, or write it anew with madbench lm export or save_pretrained"

logger = logging.get_logger(__name__)


def digests(job: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, str] | None:
    """The SHA-256 of the job and of the weights, with the keys ``job`` and ``weights``.

    None if some weights are not completely in this process's memory.
    """
    if any(tensor.is_meta or hasattr(tensor, "full_tensor") for tensor in weights.values()):
        return None
    return {"job": job_digest(job), "weights": tensors_digest("", weights)}


def job_digest(job: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


def check_job(job: Mapping[str, Any], expected: Any, where: str) -> None:
    """Raise ``StoreError`` if the digest of ``job`` differs from that in ``expected``, or if ``expected`` is invalid.

    No check if ``expected`` is None. ``where`` is the folder or name of the model, for messages.
    """
    if expected is None:
        return
    if not isinstance(expected, Mapping) or not all(isinstance(expected.get(name), str) for name in ("job", "weights")):
        raise StoreError(
            f"{where}: config.json: expected digests of 'job' and 'weights', got {short_repr(expected)}; {ADVICE}"
        )
    if job_digest(job) != expected["job"]:
        problem = "its label or a setting differs from what was saved, by the digest of the job"
        raise StoreError(f"{where}: config.json: {problem}; {ADVICE}. For a new model use MadbenchConfig.from_job(job)")


def check_weights(files: Iterable[str], expected: Mapping[str, str] | None, where: str) -> None:
    """Raise ``StoreError`` if the digest of the weights in ``files`` is not that in ``expected``.

    Only warn if ``expected`` is None. ``where`` is the folder or name of the model, for messages.
    """
    if expected is None:
        logger.warning(f"{where}: config.json has no digests, so changes of the weights are not noticed")
        return
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= load_state_dict(file, map_location="cpu")
    if tensors_digest("", weights) != expected["weights"]:
        raise StoreError(f"{where}: the weights differ from those that were saved, by their digest; {ADVICE}")
