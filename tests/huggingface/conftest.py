"""Small language models as exported folders, opened by transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from madbench.suites import suite_of
from madbench.suites.language.suite import GPTConfig
from madbench.text.tokenizers import Tokenizer
from sample_jobs import language_job


@pytest.fixture
def make_folder(tmp_path):
    """``make_folder(label, **settings)``: the exported folder of a model with weights large enough that every path
    matters."""
    from madbench.huggingface.export import export

    def make(label: str = "S-p", n_layer: int = 2, seq_len: int = 12, positions: str = "none", **mixer: Any):
        sizes = GPTConfig(24, n_layer, 2, seq_len=seq_len, positions=positions)
        job = language_job(label, model=sizes, mixer=mixer)
        torch.manual_seed(0)
        model = suite_of(job).Trial.build(job)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        export(tmp_path / "exported", model, job, Tokenizer())
        return tmp_path / "exported"

    return make


@pytest.fixture
def make_model(make_folder):
    """``make_model(label, **settings)``: the model of :func:`make_folder`, opened."""
    import transformers

    return lambda *words, **how: transformers.AutoModelForCausalLM.from_pretrained(make_folder(*words, **how))
