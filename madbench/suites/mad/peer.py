"""A training step of the reference code of MAD, to compare its time with that of madbench's step.

The reference code is imported from a checkout of its repository.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.config import read_yaml
from madbench.errors import ConfigError
from madbench.jobs import Precision
from madbench.models.blocks import autocast
from madbench.models.shapes import ModelConfig

HOME = "github.com/athms/mad-lab"
_LAYERS = "mad.model.layers"
_PACKAGES = ("mad", "mad.model", _LAYERS, f"{_LAYERS}.ops", f"{_LAYERS}.ops.norm", f"{_LAYERS}.featurization")
HEAD_WIDTH = 8


class SoftmaxAttention(nn.Module):
    """Causal softmax attention in plain PyTorch, with RoPE on the first ``rotary_emb_dim`` coordinates of each head.

    It replaces ``MHA`` of flash-attn if that package is missing. It computes the same function without GPU kernels.
    """

    def __init__(self, embed_dim: int, num_heads: int, rotary_emb_dim: int = 0, **_: object):
        super().__init__()
        self.heads, self.turned = num_heads, int(rotary_emb_dim)
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (B, T, D) to vectors (B, T, D)."""
        q, k, v = self.Wqkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = self._turn(q), self._turn(k)
        scores = torch.einsum("bthd,bshd->bhts", q, k * q.shape[-1] ** -0.5)
        mask = torch.full(scores.shape[-2:], -10000.0, device=x.device).triu(1)
        attention = (scores + mask.to(scores.dtype)).softmax(-1, dtype=v.dtype)
        y: Tensor = self.out_proj(torch.einsum("bhts,bshd->bthd", attention, v).flatten(2))
        return y

    def _turn(self, x: Tensor) -> Tensor:
        if not self.turned:
            return x
        length, half = x.shape[1], self.turned // 2
        frequency = 10000.0 ** -(torch.arange(half, device=x.device) / half)
        angle = torch.outer(torch.arange(length, device=x.device).float(), frequency)[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, first * sin + second * cos, rest), dim=-1)


def peer_step(
    checkout: Path,
    is_autoencoder: bool,
    config: ModelConfig,
    vocab_size: int,
    batch: tuple[Tensor, Tensor],
    precision: Precision,
) -> Callable[[], None]:
    """Return a function that takes one training step of the reference model with softmax attention.

    ``checkout`` is the folder of the reference code, from which the model is imported. A step is forward, loss,
    backward and AdamW on ``batch``, which has inputs and targets (B, T). Width and depth come from ``config``. Each
    head is 8 wide, as in the reference's configuration files. If ``is_autoencoder`` is True, the model is the
    reference's autoencoder, otherwise its language model.
    """
    inputs, targets = batch
    model = _model(checkout, is_autoencoder, config, vocab_size, inputs.shape[1]).to(inputs.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(str(inputs.device), precision):
            logits = model(inputs)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-100)
        loss.backward()
        optimizer.step()

    return step


def check_checkout(checkout: Path) -> None:
    """Raise ``ConfigError`` if a folder is not a checkout of the reference code, or if einops is not installed."""
    for name in ("mad/model/language_model.py", "mad/model/auto_encoder.py", "configs/layers/mh-attention.yml"):
        if not (checkout / name).is_file():
            raise ConfigError(f"--peer {checkout}: no {name} in it; give a checkout of {HOME}")
    if importlib.util.find_spec("einops") is None:
        raise ConfigError("--peer needs einops, which the reference imports: pip install einops")


def _model(checkout: Path, is_autoencoder: bool, config: ModelConfig, vocab_size: int, length: int) -> nn.Module:
    with _import_from(checkout):
        attention = importlib.import_module(f"{_LAYERS}.attention").Attention
        swiglu = importlib.import_module(f"{_LAYERS}.mlp").SwiGLU
        name, kind = ("auto_encoder", "AutoEncoder") if is_autoencoder else ("language_model", "LanguageModel")
        Model: type[nn.Module] = getattr(importlib.import_module(f"mad.model.{name}"), kind)
    configs = [read_yaml(checkout / f"configs/layers/{layer}.yml") for layer in ("mh-attention", "swiglu")]
    size = {"dim": config.d_model, "max_length": length}
    own = {**size, "n_heads": config.d_model // HEAD_WIDTH, "use_flash_attn": False}
    torch.manual_seed(0)
    return Model(
        vocab_size=vocab_size,
        layers=[attention, swiglu] * config.n_layer,
        layer_cfgs=[layer_config | own for layer_config in configs * config.n_layer],
        norm=nn.LayerNorm,
        **size,
    )


@contextmanager
def _import_from(checkout: Path) -> Iterator[None]:
    """A context in which modules of the reference code can be imported from ``checkout``.

    The ``__init__`` modules of the reference's packages are not run. Stand-ins replace flash-attn, if it is missing,
    and the reference's RMSNorm, which needs Triton and is not used here.
    """
    stand_ins = {name: ModuleType(name) for name in _PACKAGES}
    for name, module in stand_ins.items():
        module.__path__ = [str(checkout.joinpath(*name.split(".")))]
    norm = stand_ins[f"{_LAYERS}.ops.norm.rmsnorm"] = ModuleType(f"{_LAYERS}.ops.norm.rmsnorm")
    vars(norm)["RMSNorm"] = nn.LayerNorm
    if importlib.util.find_spec("flash_attn") is None:
        for name in ("flash_attn", "flash_attn.modules", "flash_attn.modules.mha"):
            stand_ins[name] = ModuleType(name)
        vars(stand_ins["flash_attn.modules.mha"])["MHA"] = SoftmaxAttention
    before = dict(sys.modules)
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in [*sys.modules]:
            if name.split(".")[0] in ("mad", "flash_attn") and name not in before:
                del sys.modules[name]
