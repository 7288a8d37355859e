"""madbench's GPT in the interface of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerationMixin
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.utils import ModelOutput

from madbench.errors import TrainingError
from madbench.huggingface.configuration import MadbenchConfig
from madbench.models.gpt import DecodingState
from madbench.models.token_loss import logits_of
from madbench.suites import job_from_dict, suite_of


@dataclass(frozen=True)
class Decoded:
    """The state of decoding, and the ids (B, T) that it has read."""

    state: DecodingState
    ids: Tensor

    def precedes(self, ids: Tensor) -> bool:
        """Whether it has read all of ``ids`` but the last: a beam search exchanges sequences, and others cut them."""
        return self.ids.shape == ids[:, :-1].shape and bool(torch.equal(self.ids, ids[:, :-1]))


@dataclass
class CausalOutput(ModelOutput):
    """What the model gives: ``loss`` where there are labels, ``logits`` (B, T, V), ``decoded`` for the next token."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    decoded: Decoded | None = None


class MadbenchForCausalLM(PreTrainedModel, GenerationMixin):
    """A :class:`madbench.models.gpt.GPT`.

    Generation goes token by token through the caches of the mixers, and through all tokens again where a mixer has no
    step. Raises ``TrainingError`` for a configuration without a job.
    """

    config_class = MadbenchConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    _is_stateful = True  # a state cannot be cut back to fewer tokens

    def __init__(self, config: MadbenchConfig):
        super().__init__(config)
        if not config.job:
            raise TrainingError("a configuration without a job; make it with MadbenchConfig.of(job)")
        job = job_from_dict(config.job)
        self.model = suite_of(job).Trial.build(job)
        self.decodes = all(hasattr(block.mixer, "step") for block in self.model.blocks)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Leaves them as the model's own initialisation made them."""

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embedding

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        decoded: Decoded | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalOutput:
        """Ids (B, T) -> logits (B, T, V), and the mean loss of predicting ``labels`` (B, T), of which -100 is left out.

        ``attention_mask`` may hide tokens at the end of a sequence, which change nothing before them; with zeros
        elsewhere it is a ``ValueError``, as the mixers have no mask but the causal one. With ``use_cache``, or after
        what is ``decoded``, tokens go one by one through the caches: the logits are those of the last token.
        """
        if self.decodes and not self.training and labels is None and (decoded is not None or use_cache):
            check_mask(attention_mask, hides_ends=False)
            logits, state = self.model.decode(input_ids, decoded and decoded.state, slide=True)
            ids = input_ids if decoded is None else torch.cat([decoded.ids, input_ids], dim=1)
            return CausalOutput(logits=logits[:, None], decoded=Decoded(state, ids))
        check_mask(attention_mask)
        hidden = self.model.hidden(input_ids)
        logits = logits_of(self.model, hidden[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1], **kwargs)
        return CausalOutput(loss=loss, logits=logits)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the state of a mixer is no cache of keys and values

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, *args: Any, decoded: Decoded | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """The newest token and what is decoded before it, else all tokens."""
        inputs = {"input_ids": input_ids, "attention_mask": kwargs.get("attention_mask")}
        if not self.decodes or kwargs.get("use_cache") is False:
            return inputs | {"use_cache": False, "logits_to_keep": 1}
        if decoded is None or not decoded.precedes(input_ids):
            return inputs | {"use_cache": True}
        return inputs | {"input_ids": input_ids[:, -1:], "decoded": decoded, "use_cache": True}

    def _update_model_kwargs_for_generation(self, outputs: CausalOutput, model_kwargs: dict, **kwargs: Any) -> dict:
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **kwargs)
        return model_kwargs | {"decoded": outputs.get("decoded")}


def check_mask(attention_mask: Tensor | None, hides_ends: bool = True) -> None:
    """Raises ``ValueError`` for a mask (B, T) that hides tokens, other than at the end of a sequence if that may be."""
    if attention_mask is None:
        return
    mask = attention_mask.bool()
    is_sound = not (mask[:, 1:] & ~mask[:, :-1]).any() if hides_ends else mask.all()
    if not is_sound:
        raise ValueError(
            "the attention mask hides tokens before others, as padding on the left does; the mixers of madbench have "
            "no mask but the causal one: pad on the right, or generate from prompts of one length"
        )


AutoModelForCausalLM.register(MadbenchConfig, MadbenchForCausalLM)
