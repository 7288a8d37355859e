"""The configuration of an exported model: the job from which it is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.configuration_utils import PretrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig

from madbench.jobs import Job

MODEL_TYPE = "madbench"


class MadbenchConfig(PretrainedConfig):
    """The job of a run, and what transformers asks of every configuration, read from it."""

    model_type = MODEL_TYPE

    def __init__(self, job: Mapping[str, Any] | None = None, **kwargs: Any):
        self.job = dict(job or {})
        if self.job:
            model = self.job["model"]
            kwargs |= {"vocab_size": self.job["setting"]["vocab_size"], "hidden_size": model["d_model"]}
            kwargs |= {"num_hidden_layers": model["n_layer"], "num_attention_heads": model["n_head"]}
            kwargs |= {"max_position_embeddings": model["seq_len"]}
        kwargs["tie_word_embeddings"] = False  # where they are tied they are one parameter
        super().__init__(**kwargs)

    @classmethod
    def of(cls, job: Job, **kwargs: Any) -> MadbenchConfig:
        """The configuration of a job's model."""
        return cls(job.to_dict(), architectures=["MadbenchForCausalLM"], **kwargs)


AutoConfig.register(MODEL_TYPE, MadbenchConfig)
