"""The interface to a trained language model for lm-evaluation-harness: likelihoods and generated texts."""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from tqdm import tqdm

from madbench import __version__
from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.labels import parse
from madbench.mixers import label_traits
from madbench.models.blocks import autocast
from madbench.models.continuation import continuations
from madbench.models.gpt import GPT, draw
from madbench.models.likelihood import Likelihood, log_likelihoods
from madbench.models.shapes import GPTConfig
from madbench.suites.training import MICRO_BATCH_TOKENS
from madbench.training.checkpoints import tensors_digest
from madbench.training.devices import git_state

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from madbench.text.byte_tokenizer import Tokenizer

DRAWING = {"until", "max_gen_toks", "do_sample", "temperature", "top_k", "seed"}
"""The supported settings of generated texts."""
SEED = 1234
OWNER = "madbench: the model that gave these answers"
"""The key of a file of answers under which the identity of the model that gave them is stored."""


class HarnessModel(TemplateLM):
    """The harness's interface to a :class:`madbench.models.gpt.GPT`.

    If a question has an empty context, the end of text is its context, as in training. A context longer than
    ``seq_len`` tokens loses its beginning. A continuation longer than that is scored in windows, as
    ``loglikelihood_rolling`` scores a text, because with byte tokens many answers are longer than a window. Forward
    passes have the precision of the training. Log-probabilities are float32, and their sums float64.

    ``seq_len`` is by default the context length of the training. Raises ``ConfigError`` if it is longer and the model
    has learned positions or tables only for the shorter length.
    """

    def __init__(
        self,
        model: GPT,
        job: Job[GPTConfig],
        vocabulary: Tokenizer,
        device: str = "cpu",
        seq_len: int | None = None,
        batch_size: int | None = None,
    ):
        super().__init__()
        longest = None if model.positions is None and not label_traits(parse(job.label)).has_tables else model.seq_len
        if longest and seq_len and seq_len > longest:
            raise ConfigError(f"seq_len {seq_len}: {job.label} has positions for the {longest} tokens of its training")
        self.model, self.job, self.vocabulary = model.to(device).eval(), job, vocabulary
        self.max_length, self.batch_size = seq_len or model.seq_len, batch_size
        self.device_name, self.autocast = device, functools.partial(autocast, device, job.training.precision)

    @property
    def eot_token_id(self) -> int:
        return self.vocabulary.end_of_text

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_name)

    @functools.cached_property
    def identity(self) -> str:
        """A SHA-256 of everything that an answer depends on.

        This is the weights, the job, the tokenizer, the context length, the device and the code.
        """
        facts = [self.job.to_dict(), self.vocabulary.digest, self.max_length]
        facts += [self.device_name, __version__, git_state()]
        return tensors_digest(json.dumps(facts, sort_keys=True), self.model.state_dict())

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Use the file in which the harness keeps answers, after checking that the answers in it are of this model.

        The harness looks up an answer by the question alone, and does not know which model gave it. Therefore the
        identity of the model is stored in the file. Raises ``ConfigError`` if the file has answers of another model.
        """
        super().set_cache_hook(cache_hook)
        answers = cache_hook.dbdict
        if answers is None:
            return
        name = f"{self.job.label} (run {self.job.id})"
        owner = answers.get(OWNER, (None, "a model that it does not name") if len(answers) else None)
        if owner is not None and owner[0] != self.identity:
            of_what = owner[1] if owner[1] != name else f"{name} with other weights, settings or code"
            raise ConfigError(
                f"{answers.filename}: holds answers of {of_what}, which the harness would give for {name}; use another "
                "--use_cache for each model, or delete the file"
            )
        answers[OWNER] = (self.identity, name)

    def get_model_info(self) -> dict[str, Any]:
        """The facts about the model that the harness adds to its results: number of parameters, label and run."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return {"model_num_parameters": parameters, "model_label": self.job.label, "model_run": self.job.id}

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        ids: list[int] = self.vocabulary.encode(string).tolist()
        return ids

    def tok_decode(self, tokens: Iterable[int], skip_special_tokens: bool = True) -> str:
        return self.vocabulary.decode(tokens)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        start = [self.prefix_token_id]  # the context is only white space, which belongs to the continuation
        pairs = [(context or start, continuation) for _, context, continuation in requests]
        with self._bar(len(pairs), "likelihoods", disable_tqdm) as bar:
            for place, answer in self._likelihoods(pairs):
                answers[place] = (answer.log_p, answer.is_greedy)
                self.cache_hook.add_partial("loglikelihood", requests[place][0], answers[place])
                bar.update()
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        texts = [request.args[0] for request in requests]
        pairs = [([self.eot_token_id], self.tok_encode(text)) for text in texts]
        answers = [0.0] * len(texts)
        with self._bar(len(pairs), "texts", disable_tqdm) as bar:
            for place, answer in self._likelihoods(pairs):
                answers[place] = answer.log_p
                self.cache_hook.add_partial("loglikelihood_rolling", (texts[place],), answer.log_p)
                bar.update()
        return answers

    def _bar(self, total: int, what: str, is_hidden: bool) -> tqdm:
        """A progress bar over ``total`` steps, described by ``what``. It is shown on a terminal, unless ``is_hidden``.

        It uses the original error output, even if ``sys.stderr`` has been replaced.
        """
        asks_terminal = None  # tqdm then shows the bar only on a terminal
        return tqdm(
            total=total,
            desc=f"{self.job.label}: {what}",
            disable=is_hidden or asks_terminal,
            file=sys.__stderr__,
        )

    def _likelihoods(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[tuple[int, Likelihood]]:
        return log_likelihoods(
            self.model,
            pairs,
            seq_len=self.max_length,
            batch_tokens=MICRO_BATCH_TOKENS,
            device=self.device_name,
            autocast=self.autocast(),
            vocab_size=self.vocabulary.vocab_size,
            batch_size=self.batch_size,
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The generated texts, one per request, without their stop strings. By default the likeliest token is chosen.

        Prompts of equal lengths and settings go through the model together. Raises ``ConfigError`` if tokens are to be
        drawn at random with settings other than :data:`DRAWING`.
        """
        groups: dict[tuple[int, str], list[int]] = defaultdict(list)
        settings = [self._settings(request.args[1]) for request in requests]
        prompts = [self._prompt(request.args[0], how["max_gen_toks"]) for request, how in zip(requests, settings)]
        for place, (prompt, how) in enumerate(zip(prompts, settings)):
            groups[len(prompt), repr(sorted(how.items()))].append(place)
        texts = [""] * len(requests)
        with self._bar(len(requests), "texts", disable_tqdm) as bar:
            for (length, _), places in sorted(groups.items(), reverse=True):
                places.sort(key=lambda place: prompts[place])
                size = min(max(1, MICRO_BATCH_TOKENS // (4 * length)), self.batch_size or len(places))
                for first in range(0, len(places), size):
                    batch = places[first : first + size]
                    written = self._write([prompts[place] for place in batch], settings[batch[0]])
                    for place, text in zip(batch, written):
                        texts[place] = text
                        self.cache_hook.add_partial("generate_until", requests[place].args, text)
                    bar.update(len(batch))
        return texts

    def _settings(self, gen_kwargs: dict[str, Any]) -> dict[str, Any]:
        settings = dict(normalize_gen_kwargs(gen_kwargs))
        settings["until"] = handle_stop_sequences(settings["until"], None)
        if settings["do_sample"] and (unknown := settings.keys() - DRAWING):
            allowed = ", ".join(sorted(DRAWING))
            raise ConfigError(f"generation_kwargs {', '.join(sorted(unknown))}: not supported; expected {allowed}")
        return settings

    def _prompt(self, context: str, count: int) -> list[int]:
        """The newest ids of the text ``context`` from which ``count`` more ids can be generated.

        A model with learned positions reads at most its context length of ids, the generated ids included. Only the
        last generated id is not read. Other models have no such limit, so the prompt may fill the context.
        """
        ids = self.tok_encode(context) or [self.eot_token_id]
        room = self.max_length
        return ids[-(room if self.model.positions is None else max(1, room + 1 - count)) :]

    def _write(self, prompts: list[list[int]], how: dict[str, Any]) -> list[str]:
        """Generate a text after each prompt with the settings ``how``. Prompts are lists of ids of equal lengths.

        A text ends before its first stop string or the end of text.
        """
        stop_texts, count = [text for text in how["until"] if text], how["max_gen_toks"]
        if self.model.positions is not None:
            count = min(count, self.max_length + 1 - len(prompts[0]))
        generator = torch.Generator(self.device_name).manual_seed(how.get("seed", SEED))
        temperature = how.get("temperature", 1.0) if how["do_sample"] else 0.0
        end = self.eot_token_id

        def is_over(_: int, ids: Sequence[int]) -> bool:
            return ids[-1] == end or any(text in self.vocabulary.decode(ids) for text in stop_texts)

        continued_ids = continuations(
            self.model,
            prompts,
            count,
            is_over=is_over,
            draw=functools.partial(draw, generator=generator, temperature=temperature, top_k=how.get("top_k")),
            vocab_size=self.vocabulary.vocab_size,
        )
        texts = [self.vocabulary.decode(ids[:-1] if ids[-1:] == [end] else ids) for ids in continued_ids]
        for stop in stop_texts:
            texts = [text.split(stop)[0] for text in texts]
        return texts
