"""The configuration of an exported model: the job that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from transformers.configuration_utils import PretrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig

from madbench.config import MOST
from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.models.shapes import GPTConfig
from madbench.store.format import read_job
from madbench.suites import suite_of
from madbench.text.documents import first_line

MODEL_TYPE = "madbench"


class MadbenchConfig(PretrainedConfig):
    """The configuration of an exported model: the job that describes it, and entries that transformers requires.

    ``digests`` are the digests of the job and of the saved weights (:mod:`madbench.huggingface.digests`). None for a
    model that was not saved. Raises ``ConfigError`` if ``job`` is not the job of a language model, or if transformers
    cannot read an entry.
    """

    model_type = MODEL_TYPE

    def __init__(self, job: Mapping[str, Any] | None = None, digests: dict[str, str] | None = None, **kwargs: Any):
        self.job, self.digests = job or {}, digests
        if job:
            made = language_job(job)
            kwargs |= {"vocab_size": made.setting["vocab_size"], "hidden_size": made.model.d_model}
            kwargs |= {"num_hidden_layers": made.model.n_layer, "num_attention_heads": made.model.n_head}
            kwargs |= {"max_position_embeddings": made.model.seq_len}
        kwargs["tie_word_embeddings"] = False  # tied embeddings are one parameter already
        try:
            super().__init__(**kwargs)
        except Exception as error:  # transformers raises many kinds of errors, such as for an unknown dtype
            raise ConfigError(f"config.json: an entry that transformers cannot read: {first_line(error)}") from None

    @classmethod
    def from_job(cls, job: Job, **kwargs: Any) -> MadbenchConfig:
        """Make the configuration of the model that ``job`` describes."""
        return cls(job.to_dict(), architectures=["MadbenchForCausalLM"], **kwargs)


def language_job(mapping: Any) -> Job[GPTConfig]:
    """Read the job of a language model from its JSON ``mapping``. Raises ``ConfigError`` for anything else."""
    where = "config.json: job"
    job = read_job(mapping, where)
    vocab_size = job.setting.get("vocab_size") if suite_of(job).corpus_of(job) else None
    if type(vocab_size) is not int or not 1 <= vocab_size <= MOST["vocab_size"]:
        raise ConfigError(f"{where}: expected the job of a language model, whose setting has a vocab_size")
    return cast("Job[GPTConfig]", job)


AutoConfig.register(MODEL_TYPE, MadbenchConfig)
