"""Benchmarks of GPT-2-shaped models: Table 5 of the HyperMLP paper for our labels, and decoding token by token."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.bench.mixer import InputShape, check_error, check_path, make, resolved_path
from madbench.bench.parts import BenchColumn, BenchPart, BenchRow, BenchSetup, Curve
from madbench.bench.timing import peak_bytes, reason_unmeasured, require_timings, time_in_turns
from madbench.config import PAPERS
from madbench.labels import parse
from madbench.mixers import build, solve
from madbench.mixers.checks.residuals import difference
from madbench.mixers.named.budget import NamedLabel
from madbench.models.blocks import autocast
from madbench.models.gpt import GPT, DecodingState
from madbench.models.token_loss import TokenLoss

PLAIN_LABELS = ("cd:linear", "cd:id-dm-bd")
"""Labels of the family ``cd`` for two rows of the paper's Table 5: linear attention, and Mamba with one step size per
head."""
NAMED_LABELS = ("GLA", "HGRN2", "GSA", "PaTH", "RWKV-7", "Mamba-2", "GDN")
"""Labels of published layers in our Table 5. The paper's Table 5 has rows for the first five of them only."""
PUBLISHED_ROWS = {
    "S flash": "SM(Flash)", "G-cg-q-12o": "HyperGLU", "S naive": "SM(Naive)", "cd:linear": "LinAttn",
    "cd:id-dm-bd": "Mamba", "GLA": "GLA", "HGRN2": "HGRN2", "GSA": "GatedSlot Attention",
    "PaTH": "PaTH Attention", "RWKV-7": "RWKV7",
}  # fmt: skip
"""The row of the paper's Table 5, by the name of our row."""
PAPER_ROWS = 64
"""Query rows per block in :func:`paper_flops_per_token`."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a language model, and the shape of its input."""

    d_model: int
    n_layer: int
    vocab_size: int
    length: int
    batch: int


GPT2_SMALL = ModelShape(768, 12, 50304, 1024, 8)  # the paper's shape and its batch of random tokens
SMALL = ModelShape(256, 2, 4096, 512, 2)  # for a CPU
SMALL_DECODED = ModelShape(256, 4, 4096, 512, 1)
SOFTMAX_HEADS = 12
NEW_TOKENS = 32


def model_of(
    label: str, shape: ModelShape, setup: BenchSetup, path: str = "auto", n_head: int = 2, tokens: int = 0
) -> GPT:
    """Build a language model of ``label`` on the device of ``setup``, with fixed initial weights.

    It accepts ``tokens`` more tokens than the length of ``shape``, for decoding.
    """

    def mixer() -> nn.Module:
        return build(parse(label), shape.d_model, shape.length + tokens, n_head=n_head, budget="paper", path=path)

    torch.manual_seed(0)
    return GPT(shape.vocab_size, shape.d_model, shape.n_layer, mixer, shape.length + tokens).to(setup.device)


def flops_per_token(label: str, shape: ModelShape, n_head: int) -> float:
    """The FLOPs of a forward pass per token, where a multiply-add counts two.

    They are the sum over the mixers, as their allocation counts them, the MLPs and the map to logits.
    """
    mixer = solve(label, shape.d_model, n_head, shape.length, "paper").flops_per_token(shape.length)
    return shape.n_layer * (mixer + 16 * shape.d_model**2) + 2 * shape.d_model * shape.vocab_size


def paper_flops_per_token(name: str, label: str, n_head: int, qk_rank: int = 0) -> float:
    """The FLOPs of a forward pass per token as counted in the paper's Table 5, at its shape ``GPT2_SMALL``.

    The map to logits does not count. A pair of tokens counts only if it is computed outside of a fused kernel. The name
    of the row determines how many of the pairs count:

    - ``S naive``: all pairs;
    - ``S flash``: none;
    - any other row: the causal half, in blocks of ``PAPER_ROWS`` query rows.

    ``qk_rank`` replaces the rank r_qk that meets the budget, unless it is 0.
    """
    shape = GPT2_SMALL
    mixer = solve(label, shape.d_model, n_head, shape.length, "paper")
    if qk_rank:
        assert is_dataclass(mixer)
        mixer = replace(mixer, ranks={**mixer.ranks, "qk": qk_rank})
    first, last = mixer.flops_per_token(1), mixer.flops_per_token(shape.length)
    per_pair = (last - first) / ((shape.length - 1) / 2)
    pairs = {"S flash": 0, "S naive": shape.length}.get(name, (shape.length + PAPER_ROWS) / 2)
    return shape.n_layer * (first - per_pair + per_pair * pairs + 16 * shape.d_model**2)


def published_rows() -> dict[str, dict[str, float]]:
    """The numbers of the paper's Table 5, by the name of our row (``PUBLISHED_ROWS``) and by column of the paper."""
    with open(PAPERS / "hypermlp" / "table5_l40s.csv", newline="", encoding="utf-8") as file:
        rows = {row.pop("model"): {name: float(value) for name, value in row.items()} for row in csv.DictReader(file)}
    return {name: rows[theirs] for name, theirs in PUBLISHED_ROWS.items()}


def _published_row(name: str, label: str, n_head: int) -> BenchRow:
    """The numbers of a row that come from the paper's Table 5, in columns ``published_...``.

    The row also has our count of FLOPs per token at the paper's size, unless ``label`` is in ``PLAIN_LABELS`` or
    ``NAMED_LABELS``. ``name`` is the name of our row.
    """
    row: BenchRow = {"published": PUBLISHED_ROWS[name]} if name in PUBLISHED_ROWS else {}
    row |= {f"published_{key}": value for key, value in published_rows().get(name, {}).items()}
    if label not in (*PLAIN_LABELS, *NAMED_LABELS):
        row["paper_mflop_per_token"] = paper_flops_per_token(name, label, n_head) / 1e6
    return row


def _shape(setup: BenchSetup, on_cpu: ModelShape = SMALL, on_gpu: ModelShape = GPT2_SMALL) -> ModelShape:
    """The shape that ``setup`` requests.

    Sizes that it does not give are those of ``on_cpu`` or ``on_gpu``, by device.
    """
    base = on_cpu if setup.is_cpu else on_gpu
    length = setup.lengths[0] if setup.lengths else base.length
    return ModelShape(setup.d_model or base.d_model, base.n_layer, base.vocab_size, length, setup.batch or base.batch)


def _models(setup: BenchSetup) -> list[tuple[str, str, str, int]]:
    """The rows of Table 5: the name, the label, the path and the number of heads of each model."""
    heads = SOFTMAX_HEADS if _shape(setup).d_model % SOFTMAX_HEADS == 0 else 8
    models = [("S flash", "S", "sdpa", heads), *((label, label, "auto", 2) for label in setup.labels)]
    models += [("S naive", "S", "dense", heads)]
    others = [label for label in (*PLAIN_LABELS, *NAMED_LABELS) if label not in setup.labels]
    return models + [(label, label, _path(label, setup), 2) for label in others]


def _path(label: str, setup: BenchSetup) -> str:
    """The path for a label of Table 5: ``fla`` if flash-linear-attention can compute it here, otherwise ``auto``.

    ``fla`` needs a named layer with such a path, a GPU, 16-bit precision and the library ``fla``.
    """
    is_possible = label in NAMED_LABELS and not setup.is_cpu and setup.precision != "float32"
    parsed = parse(label)
    has_kernels = is_possible and isinstance(parsed, NamedLabel) and "fla" in parsed.operator.paths
    return "fla" if has_kernels and importlib.util.find_spec("fla") is not None else "auto"


def measure_table5(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure the columns of the paper's Table 5. One row per model.

    A row has FLOPs, and for a forward pass and a training step the latency, the tokens per second and the peak memory.
    Each model is timed in turns with the first model, ``S flash``. A model that cannot be measured has an ``error``.
    """
    shape = _shape(setup)
    flash: dict[str, Callable[[], None]] = {}
    tokens = torch.randint(shape.vocab_size, (shape.batch, shape.length), device=setup.device)
    for name, label, path, heads in setup.in_time(_models(setup)):
        row: BenchRow = {"label": name, "length": shape.length, "batch": shape.batch, "d_model": shape.d_model}
        try:
            row |= _published_row(name, label, SOFTMAX_HEADS if name in ("S flash", "S naive") else 2)
            of_mixer = InputShape(shape.batch, shape.length, shape.d_model)
            row["path"] = resolved_path(make(label, of_mixer, setup, path, heads), of_mixer, setup, path)
            check_path(label, of_mixer, setup, row["path"], heads)
            model = model_of(label, shape, setup, path, heads)
            passes = _passes(model, tokens, setup)
            measured = time_in_turns(passes | flash, setup.limits, setup.device)
            if name == "S flash":
                flash, measured["flash train"] = {f"flash {way}": run for way, run in passes.items()}, measured["train"]
            times = require_timings(measured)
            weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
            kept_bytes = {"forward": weights, "train": 3 * weights}  # AdamW has two moments
            peaks = {way: kept_bytes[way] + peak_bytes(run, setup.device) for way, run in passes.items()}
            flops = flops_per_token(label, shape, heads)
        except Exception as error:  # many kinds of errors of a kernel or a compiler
            yield row | {"error": reason_unmeasured(error)}
            continue
        cost = {"forward_tflop": flops * tokens.numel() / 1e12, "forward_mflop_per_token": flops / 1e6}
        row |= cost | {name.replace("forward", "train"): 3 * value for name, value in cost.items()}
        row["compiled"] = setup.compiles
        if "flash train" in times:
            row["train_over_flash"] = times["train"].median / times["flash train"].median
        for way in passes:
            time = times[way]
            row |= {f"{way}_seconds": time.median, f"{way}_low_seconds": time.low, f"{way}_high_seconds": time.high}
            row |= {f"{way}_ktokens_per_second": tokens.numel() / time.median / 1e3, f"{way}_gib": peaks[way] / 2**30}
        yield row


def _passes(model: GPT, tokens: Tensor, setup: BenchSetup) -> dict[str, Callable[[], None]]:
    """Two functions to be timed: ``forward``, a forward pass without gradients, and ``train``, a training step.

    The training step has forward pass, loss, backward pass and AdamW.
    """
    if setup.compiles:
        for block in model.blocks:  # blocks have equal code, so one compilation serves all
            block.compile(dynamic=False)
    loss = TokenLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def forward() -> None:
        with torch.no_grad(), autocast(setup.device, setup.precision):
            model(tokens)

    def train() -> None:
        with autocast(setup.device, setup.precision):
            value = loss(tokens, tokens)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"forward": forward, "train": train}


def measure_decoding(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure decoding: reading a prompt, and then ``NEW_TOKENS`` tokens one by one. One row per label.

    ``S`` is always included as the first label. Each label is timed in turns with it.
    """
    shape = _shape(setup, SMALL_DECODED, replace(GPT2_SMALL, batch=1))
    tokens = torch.randint(shape.vocab_size, (shape.batch, shape.length), device=setup.device)
    softmax: dict[str, Callable[[], None]] = {}
    for label in setup.in_time(dict.fromkeys(["S", *setup.labels])):
        row: BenchRow = {"label": label, "length": shape.length, "batch": shape.batch, "d_model": shape.d_model}
        try:
            model = model_of(label, shape, setup, tokens=NEW_TOKENS).eval()
            _check_decoding(model, tokens[:1, :64], setup)
            cases = _decoding(model, tokens, setup)
            measured = time_in_turns(cases | softmax, setup.limits, setup.device)
            if label == "S":
                softmax, measured["S tokens"] = {f"S {name}": run for name, run in cases.items()}, measured["tokens"]
            times = require_timings(measured)
        except Exception as error:  # many kinds of errors of a kernel
            yield row | {"error": reason_unmeasured(error)}
            continue
        prompt, step = times["prompt"], times["tokens"]
        row |= {**prompt.milliseconds("prompt"), "prompt_tokens_per_second": tokens.numel() / prompt.median}
        row |= {f"token{name}": value / NEW_TOKENS for name, value in step.milliseconds("").items()}
        row["tokens_per_second"] = shape.batch * NEW_TOKENS / step.median
        if "S tokens" in times:
            row["speed_over_S"] = times["S tokens"].median / step.median
        yield row


def _decoding(model: GPT, tokens: Tensor, setup: BenchSetup) -> dict[str, Callable[[], None]]:
    """Two functions to be timed: one reads the prompt ``tokens``, the other decodes ``NEW_TOKENS`` tokens after it.

    Their names are ``prompt`` and ``tokens``.
    """

    def read_prompt() -> tuple[Tensor, DecodingState]:
        with torch.inference_mode(), autocast(setup.device, setup.precision):
            return model.decode(tokens)

    def prompt() -> None:
        read_prompt()

    def following() -> None:
        logits, state = read
        with torch.inference_mode(), autocast(setup.device, setup.precision):
            for _ in range(NEW_TOKENS):
                logits, state = model.decode(logits.argmax(-1, keepdim=True), state)

    read = read_prompt()
    return {"prompt": prompt, "tokens": following}


def _check_decoding(model: GPT, tokens: Tensor, setup: BenchSetup) -> None:
    """Raise ``WrongResultError`` if decoding ``tokens`` gives other logits for the last token than the forward pass.

    The first half of the tokens is read at once, the second half one by one.
    """
    half = tokens.shape[1] // 2
    with torch.inference_mode(), autocast(setup.device, setup.precision):
        expected = model(tokens)[:, -1]
        _, state = model.decode(tokens[:, :half])
        for token in tokens[:, half:].split(1, dim=1):
            logits, state = model.decode(token, state)
    error = difference(F.normalize(logits.float(), dim=-1), F.normalize(expected.float(), dim=-1))
    check_error(error, setup)


TABLE5 = BenchPart(
    "table5",
    "the columns of the paper's Table 5",
    "A GPT-2-shaped model on random tokens: TFLOP of a forward pass and MFLOP per token by formula, with the "
    "output and the pairs that causality keeps (a training step has three times as many). Paper's count: MFLOP "
    "per token of its GPT-2-small as counted in its Table 5: without the output, with all pairs of S naive, no "
    f"pairs inside a kernel, and pairs in blocks of {PAPER_ROWS} rows of a label. Next to it: the paper's "
    "published number, on an L40S. HyperGLU's 183.27 fits r_qk = d/4 (183.4), which exceeds the budget with its "
    "tables; the row has d/8. Seconds of a forward pass and of a training step (forward, loss, backward, AdamW), "
    "the latter as a multiple of S flash in the same rounds, thousand tokens per second, and peak GiB. Named "
    "layers take the kernels of flash-linear-attention on a GPU if it is installed. S flash and S naive have many "
    "heads, the others two.",
    [
        BenchColumn("label", "Model"),
        BenchColumn("forward_tflop", "TFLOP", "{:.3g}"),
        BenchColumn("forward_mflop_per_token", "MFLOP", "{:.1f}"),
        BenchColumn("paper_mflop_per_token", "Paper's count", "{:.2f}"),
        BenchColumn("published_fwd_mflop_per_token", "Published", "{:.2f}"),
        BenchColumn("published_train_latency_s", "Publ. s", "{:.4f}"),
        BenchColumn("published_train_mem_gb", "Publ. GB", "{:.2f}"),
        BenchColumn("forward_seconds", "Fwd s", "{:.4f}"),
        BenchColumn("train_seconds", "Train s", "{:.4f}"),
        BenchColumn("train_low_seconds", "Spread", "{:.3f}-{train_high_seconds:.3f}"),
        BenchColumn("train_over_flash", "x flash", "{:.2f}"),
        BenchColumn("forward_ktokens_per_second", "Fwd k/s", "{:.1f}"),
        BenchColumn("train_ktokens_per_second", "k/s", "{:.1f}"),
        BenchColumn("forward_gib", "Fwd GiB", "{:.2g}"),
        BenchColumn("train_gib", "GiB", "{:.2g}"),
    ],
    Curve("label", "train_seconds", "s, training step"),
    measure_table5,
    ("label",),
    lambda setup: len(_models(setup)),
)
DECODE = BenchPart(
    "decode",
    "reading a prompt, and token by token after it",
    f"A GPT-2-shaped model without training: milliseconds of a prompt, and of each of {NEW_TOKENS} tokens after it, "
    "with the least and the longest; tokens per second, and over those of S in the same rounds.",
    [
        BenchColumn("label", "Label"),
        BenchColumn("length", "Prompt"),
        BenchColumn("prompt_ms", "Prompt ms", "{:.1f}"),
        BenchColumn("prompt_tokens_per_second", "Prompt/s", "{:.0f}"),
        BenchColumn("token_ms", "Token ms", "{:.2f}"),
        BenchColumn("token_low_ms", "Spread", "{:.2f}-{token_high_ms:.2f}"),
        BenchColumn("tokens_per_second", "Tokens/s", "{:.1f}"),
        BenchColumn("speed_over_S", "Over S", "{:.2f}"),
    ],
    Curve("label", "tokens_per_second", "tokens/s"),
    measure_decoding,
    ("label",),
    lambda setup: len({"S", *setup.labels}),
)
