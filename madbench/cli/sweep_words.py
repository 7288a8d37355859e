"""Words and options of ``madbench sweep`` in the form that a grid and an executor take."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from madbench.cli.options import labels_and_overrides
from madbench.config import read_yaml, settings_of
from madbench.errors import ConfigError

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def source_of(words: list[str]) -> tuple[Path | list[str], dict[str, Any]]:
    """The grid's file or the labels, and the settings that all rows share."""
    from madbench.grid import is_grid_file

    files = [word for word in words if is_grid_file(word) and "=" not in word]
    labels, overrides = labels_and_overrides([word for word in words if word not in files])
    if len(files) > 1:
        raise ConfigError(f"{files[1]}: give one grid; {files[0]} is one already")
    if files and labels:
        raise ConfigError(f"{labels[0]!r} has no effect: the labels are those of {files[0]}")
    return (Path(files[0]) if files else labels), settings_of(overrides)


def axes_of(vary: list[str]) -> dict[str, Any]:
    """``["model.mix_rank=4,8"]`` -> ``{"model.mix_rank": [4, 8]}``."""
    for word in vary:
        if not re.fullmatch(r"[^=]+=.*\S.*", word):
            raise ConfigError(f"--vary {word!r}: expected KEY=V1,V2,... such as model.mix_rank=4,8")
    return settings_of([re.sub("=(.*)", r"=[\1]", word, count=1) for word in vary])


def baseline_of(text: str) -> dict[str, Any]:
    """``"S-p model.mix_rank=4"`` -> ``{"label": "S-p", "model.mix_rank": 4}``."""
    try:
        labels, overrides = labels_and_overrides(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--baseline {text!r}: {error}") from None
    if len(labels) > 1 or not labels + overrides:
        raise ConfigError(f"--baseline {text!r}: expected one label, settings KEY=VALUE, or both")
    return ({"label": labels[0]} if labels else {}) | settings_of(overrides)


def seconds_of(text: str) -> float:
    """``"30m"`` -> ``1800.0``."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([smh])", text.strip())
    if not found:
        raise ConfigError(f"--time-limit {text!r}: expected a number and its unit, such as 90s, 30m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def gpus_of(text: str, device: str) -> list[str]:
    """``"0,1"`` as values of CUDA_VISIBLE_DEVICES; numbers count within what it lets this process see."""
    from madbench.training.devices import resolve_device

    gpus = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,4}", gpu) for gpu in gpus) or len(set(gpus)) < len(gpus):
        raise ConfigError(f"--devices {text!r}: expected numbers of GPUs, each once, such as 0,1")
    if device not in ("auto", "cuda"):
        raise ConfigError(f"--devices {text}: has no effect with --device {device}")
    for gpu in gpus:
        resolve_device(f"cuda:{gpu}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [visible[int(gpu)] for gpu in gpus] if visible != [""] else gpus


def replaced_keys(path: Path, changes: dict[str, Any]) -> list[str]:
    """A sentence for every key of the file that the command line replaces."""
    in_file, sentences = read_yaml(path), []
    nested = [(f"{name}: ", in_file.get(name), changes.get(name, {})) for name in ("set", "vary")]
    whole = {key: value for key, value in changes.items() if key not in ("set", "vary")}
    for prefix, known, given in [("", in_file, whole), *nested]:
        for key, value in given.items():
            if isinstance(known, dict) and key in known and known[key] != value:
                before, after = json.dumps(known[key], default=str), json.dumps(value)
                sentences.append(f"{path}: {prefix}{key} {after} instead of {before}")
    return sentences
