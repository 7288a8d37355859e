"""Export of a trained language model as a folder for transformers: configuration, weights, tokenizer, model card."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.errors import require
from madbench.files import new_folder
from madbench.jobs import Job, Record
from madbench.models.shapes import GPTConfig
from madbench.store.archive import without_folder
from madbench.suites import suite_of
from madbench.text.byte_tokenizer import text_of
from madbench.text.folder_tokenizer import FolderTokenizer

if TYPE_CHECKING:
    from torch import nn

    from madbench.text.byte_tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"
NEEDED = "--format hf"


def export(
    folder: Path, model: nn.Module, job: Job[GPTConfig], tokenizer: Tokenizer, record: Record | None = None
) -> None:
    """Write a trained model with its tokenizer to the new folder ``folder``, in one atomic step.

    The folder must not exist yet. ``record`` is the record of the run, from which the model card takes measurements.
    Raises ``MissingExtraError`` if transformers is not installed, and ``StoreError`` if the folder cannot be written.
    """
    transformers = require("transformers", NEEDED, "transformers")
    from madbench.huggingface.configuration import MadbenchConfig
    from madbench.huggingface.modeling import MadbenchForCausalLM

    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), tokenizer.end_of_text)
    exported = MadbenchForCausalLM(MadbenchConfig.from_job(job, **ids))
    exported.model.load_state_dict(model.state_dict())
    unused = [*range(tokenizer.vocab_size, job.setting["vocab_size"])]
    exported.generation_config = transformers.GenerationConfig(suppress_tokens=unused or None, **ids)
    with new_folder(folder) as temporary:
        exported.save_pretrained(temporary)
        fast_tokenizer(tokenizer).save_pretrained(temporary)
        card = model_card(folder.name, job, tokenizer, record, pads=not exported.model.rows_depend_on_length)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def fast_tokenizer(tokenizer: Tokenizer) -> Any:
    """Convert ``tokenizer`` to a ``PreTrainedTokenizerFast`` that gives every text the same ids.

    The end of text is a special token. No text becomes this token, not even the text ``<|endoftext|>``, which training
    reads like any other text. No token is added before or after a text. Raises ``MissingExtraError`` if transformers is
    not installed.
    """
    library = require("tokenizers", NEEDED, "transformers")
    transformers = require("transformers", NEEDED, "transformers")
    if isinstance(tokenizer, FolderTokenizer):
        fast, end = library.Tokenizer.from_str(tokenizer.library_json), tokenizer.end
    else:
        pieces, end = library.pre_tokenizers, END_OF_TEXT
        vocabulary = {text_of(token): i for i, token in enumerate(tokenizer.tokens)}
        fast = library.Tokenizer(library.models.BPE(vocabulary, merges(tokenizer.tokens)))
        fast.pre_tokenizer = pieces.ByteLevel(add_prefix_space=False, use_regex=bool(tokenizer.pattern))
        fast.decoder = library.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        bos_token=end,
        eos_token=end,
        pad_token=end,
        padding_side="right",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def merges(tokens: Sequence[bytes]) -> list[tuple[str, str]]:
    """The pairs of tokens that a BPE tokenizer with the vocabulary ``tokens`` joins, in order.

    The first 256 tokens are the bytes. Each further token is joined from the two parts into which the earlier merges
    turn its bytes.
    """
    ranks, pairs = {token: i for i, token in enumerate(tokens)}, []
    for rank, token in enumerate(tokens[256:], 256):
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            joined = [ranks.get(left + right, rank) for left, right in itertools.pairwise(parts)]
            lowest = joined.index(min(joined))
            parts[lowest : lowest + 2] = [parts[lowest] + parts[lowest + 1]]
        pairs.append((text_of(parts[0]), text_of(parts[1])))
    return pairs


def model_card(
    name: str, job: Job[GPTConfig], tokenizer: Tokenizer, record: Record | None = None, pads: bool = True
) -> str:
    """The text of an exported model's README.md: the model, its training and its measurements, and how to use it.

    ``name`` is the name of the folder. ``pads`` is False if padding would change the outputs, because they depend on
    the length of the input.
    """
    size, training = suite_of(job).size(job), job.training
    details = record.details if record else {}
    corpus = details.get("corpus", {}).get("name", job.setting["corpus"])
    facts = {
        "label": job.label,
        "parameters": f"{size.parameters:,}",
        "width, layers, heads": f"{job.model.d_model}, {job.model.n_layer}, {job.model.n_head}",
        "context": f"{job.model.seq_len} tokens",
        "tokenizer": f"{without_folder(tokenizer.spec)}, {tokenizer.vocab_size:,} ids",
        "corpus": corpus,
        "trained on": f"{size.trained_tokens:,} tokens in {size.steps:,} steps, rate {training.learning_rate:g}",
        "seed": job.seed,
        "run": job.id,
    }
    names = {"validation_loss": "validation loss, nats per token", "loss_l5": "L5, nats per token"}
    names["validation_bits_per_byte"] = "validation, bits per byte"
    metrics = record.metrics if record else {}
    facts |= {text: f"{metrics[name]:.4f}" for name, text in names.items() if name in metrics}
    rows = [f"| {key} | {value} |" for key, value in facts.items()]
    context = job.model.seq_len
    past_context = f"Past the context of {context} tokens `generate` computes each new token from the newest {context}."
    if job.model.positions == "learned":
        past_context = f"It has positions for {context} tokens, and `generate` goes no further."
    how = {
        "rows": "\n".join(rows),
        "texts": "texts of several lengths padded on the right, with their attention mask" if pads else "the same",
        "past_context": past_context,
        "end": tokenizer.end if isinstance(tokenizer, FolderTokenizer) else END_OF_TEXT,
    }
    return CARD.format(name=name, label=job.label, **how)


CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [madbench]
---

# {name}

A small language model with the sequence mixer `{label}`, trained by madbench to compare mixers with equal numbers of
parameters. It is for research only and was trained only on the corpus below. `madbench explain '{label}'` describes the
mixer.

| | |
| --- | --- |
{rows}

```python
import madbench.huggingface  # registers the model type
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
ids = tokenizer("def ", return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens=50)[0]))
```

The mixer has no mask but the causal one:

- `generate` takes prompts of one length, without padding.
- A forward pass, for logits or a loss, takes {texts}.
- Packed documents, position ids and other masks are refused.

{past_context}

The tokenizer reads `{end}` in a text as text, as training did. The id of the end of text is `tokenizer.eos_token_id`.
"""
