"""madbench's GPT in the interface of transformers."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers.generation import GenerationMixin
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.utils import ModelOutput, logging
from transformers.utils.generic import can_return_tuple

from madbench.errors import TrainingError, UntrustedCodeError
from madbench.huggingface.arguments import LENGTH, check_mask, check_no_effect, check_positions
from madbench.huggingface.configuration import MadbenchConfig, language_job
from madbench.huggingface.digests import check_job, check_weights, digests
from madbench.labels import trust
from madbench.models.gpt import GPT, DecodingState, past_context
from madbench.models.token_loss import logits_of
from madbench.suites import suite_of

_TRUSTS_CODE: ContextVar[bool] = ContextVar("trusts_code", default=False)

logger = logging.get_logger(__name__)


@dataclass
class CausalOutput(ModelOutput):
    """The output of the model.

    ``logits`` are (B, T, V) for T tokens and V ids, or (B, 1, V) with caches. ``loss`` is None without labels.
    ``decoded`` is the state of the caches for the next call, None without caches.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    decoded: DecodingState | None = None


class MadbenchForCausalLM(PreTrainedModel, GenerationMixin):
    """A :class:`madbench.models.gpt.GPT` with the interface of transformers.

    Generation goes token by token through the caches of the mixers. If a mixer cannot decode step by step, the model
    reads all tokens again for each new token. Beyond the context length ``seq_len``, the model reads the newest
    ``seq_len`` tokens again for each new token, also with ``use_cache``. Raises ``TrainingError`` for a
    configuration without a job, and for a model whose code is not trusted.
    """

    config_class = MadbenchConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    _is_stateful = True  # a state cannot be cut back to fewer tokens

    def __init__(self, config: MadbenchConfig):
        super().__init__(config)
        if not config.job:
            raise TrainingError("a configuration without a job; make it with MadbenchConfig.from_job(job)")
        check_job(config.job, config.digests, config.name_or_path or "configuration")
        job = language_job(config.job)
        if _TRUSTS_CODE.get():
            trust.allow([job.label])
        try:
            self.model = cast(GPT, suite_of(job).Trial.build(job))
        except UntrustedCodeError as error:
            raise TrainingError(
                f"the configuration is of a model of {error.label}, whose code a file names and is therefore not "
                "imported; if you trust it, open the model with trust_remote_code=True"
            ) from None
        self.decodes = all(hasattr(block.mixer, "step") for block in self.model.blocks)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *arguments: Any, trust_remote_code: bool | None = None, **settings: Any) -> Any:
        """Load a model as transformers does.

        The code of a user's module is imported only with ``trust_remote_code=True``.
        """
        token = _TRUSTS_CODE.set(bool(trust_remote_code))
        try:
            return super().from_pretrained(*arguments, trust_remote_code=trust_remote_code, **settings)
        finally:
            _TRUSTS_CODE.reset(token)

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Do nothing, so that the weights of the model's own initialization stay."""

    @staticmethod
    def _load_pretrained_model(
        model: MadbenchForCausalLM,
        state_dict: dict[str, torch.Tensor] | None,
        checkpoint_files: list[str] | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Load weights as transformers does, after comparing the files with the digest in the configuration.

        Raises ``StoreError`` if the digest differs. Weights that are given as ``state_dict`` or for an adapter are not
        compared.
        """
        if state_dict is None and not model._hf_peft_config_loaded:  # adapters have no digests
            check_weights(checkpoint_files or (), model.config.digests, model.config.name_or_path)
        model.config.digests = None  # digests belong to the folder; the open model may change
        return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, *args, **kwargs)

    def save_pretrained(
        self, save_directory: Any, *args: Any, state_dict: dict[str, torch.Tensor] | None = None, **kwargs: Any
    ) -> None:
        """Save the model as transformers does, with digests of the saved job and weights in ``config.json``.

        A quantized model is saved without digests.
        """
        if getattr(self, "hf_quantizer", None) is None:
            self.config.digests = digests(self.config.job, self.state_dict() if state_dict is None else state_dict)
        try:
            super().save_pretrained(save_directory, *args, state_dict=state_dict, **kwargs)
        finally:
            self.config.digests = None

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embedding

    @can_return_tuple  # type: ignore[untyped-decorator]  # of a library without types
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        decoded: DecodingState | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalOutput:
        """Map ids (B, T) to logits (B, T, V), and compute the mean loss over ``labels`` (B, T) other than -100.

        With ``use_cache`` or ``decoded``, tokens go through the caches of the mixers, and only the logits of the last
        token are returned, (B, 1, V). They equal the last logits without caches. ``decoded`` is the state of the caches
        after the previous tokens, from the previous output.

        An argument without effect raises ``ValueError`` with advice, unless its value asks for what the model does
        anyway. ``attention_mask`` (B, T) may hide tokens at the end of a row, since they do not affect earlier tokens.
        With caches it may hide none. ``position_ids`` may only count up by 1 from the number of decoded tokens, which
        is 0 without ``decoded``. ``logits_to_keep``
        gives the number of last tokens, or their indices, to whose logits the output is limited; 0 for all. Arguments
        of the loss, such as ``num_items_in_batch``, are passed to it.
        """
        options = kwargs | {"token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        loss_options = {name: options.pop(name) for name in self._loss_options(labels) & options.keys()}
        for name in ("output_attentions", "output_hidden_states"):
            options[name] = getattr(self.config, name, None) if options.get(name) is None else options[name]
        check_positions_of = {"position_ids": position_ids, "cache_position": options.pop("cache_position", None)}
        check_no_effect(options)
        if not isinstance(input_ids, Tensor) or input_ids.ndim != 2:
            raise ValueError("input_ids: expected a tensor (B, T) of the ids of tokens")
        first = decoded.position if decoded is not None else 0
        uses_cache = bool(use_cache) or decoded is not None
        check_mask(attention_mask, input_ids.shape, first, may_hide_ends=not uses_cache)
        if attention_mask is not None and not attention_mask.all() and self.model.rows_depend_on_length:
            raise ValueError(LENGTH)
        for name, positions in check_positions_of.items():
            check_positions(name, positions, input_ids.shape, attention_mask, first)
        if uses_cache:
            self._check_decoding(labels, logits_to_keep)
            logits, state = self.model.decode(input_ids, decoded)
            return CausalOutput(logits=logits[:, None], decoded=state)
        if labels is not None and not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            raise ValueError("logits_to_keep: the loss needs the logits of all tokens; leave it out, or labels")
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = logits_of(self.model, self.model.hidden(input_ids)[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1], **loss_options)
        return CausalOutput(loss=loss, logits=logits)

    def _loss_options(self, labels: Tensor | None) -> set[str]:
        """The names of the arguments of :meth:`forward` that are for the loss. Without ``labels`` they are ignored."""
        if labels is None:
            return {"num_items_in_batch"}  # Trainer also passes it to models whose loss it computes itself
        return set(inspect.signature(self.loss_function).parameters) - {"logits", "labels", "vocab_size", "kwargs"}

    def _check_decoding(self, labels: Tensor | None, logits_to_keep: int | Tensor) -> None:
        """Raise ``ValueError`` if the mixers have no caches, or if a loss or logits of several tokens are requested.

        Decoding through caches returns the logits of the last token only.
        """
        if not self.decodes:
            raise ValueError(f"use_cache: {self.config.job['label']} has no caches; give use_cache=False")
        if labels is not None:
            raise ValueError("labels: with caches there are logits of the last token only; give use_cache=False")
        if not isinstance(logits_to_keep, int) or logits_to_keep > 1:
            raise ValueError("logits_to_keep: with caches there are logits of the last token only; leave it out")

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # a mixer's state is not a cache of keys and values

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache_position: Tensor | None = None,
        is_first_iteration: bool | None = None,
        decoded: DecodingState | None = None,
        use_cache: bool | None = None,
        tokenizer: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The arguments of :meth:`forward` for generating the token after ``input_ids`` (B, T).

        If ``decoded``, the state of the caches, covers all tokens but the newest, only the newest token is passed on.
        Otherwise all tokens are, or the newest ``seq_len`` tokens if there are more than that. ``tokenizer`` is not
        used: ``generate`` needs it for its stopping criteria, but also passes it here.
        """
        check_mask(attention_mask, input_ids.shape, may_hide_ends=False)
        check_positions("position_ids", position_ids, input_ids.shape, None)
        inputs = kwargs | {"input_ids": self.model.newest(input_ids), "logits_to_keep": 1, "use_cache": False}
        if inputs["input_ids"].shape != input_ids.shape:
            logger.warning_once(past_context(self.model.seq_len))
            return inputs
        if not self.decodes or use_cache is False:
            return inputs
        inputs["use_cache"] = True
        if decoded is not None and torch.equal(decoded.ids, input_ids[:, :-1]):  # a beam search swaps sequences
            inputs |= {"input_ids": input_ids[:, -1:], "decoded": decoded}
        return inputs

    def _update_model_kwargs_for_generation(
        self, outputs: CausalOutput, model_kwargs: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        updated: dict[str, Any] = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **kwargs)
        return updated | {"decoded": outputs.get("decoded")}


AutoModelForCausalLM.register(MadbenchConfig, MadbenchForCausalLM)
