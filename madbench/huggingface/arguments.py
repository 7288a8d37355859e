"""Checks of the arguments of an exported model's forward pass.

The model ignores many arguments that models of transformers usually have. The checks raise an error with advice if such
an argument is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

PACKED = (
    "the mixers read a row as one text and cannot keep packed documents apart: give each document a row of its own, "
    "padded on the right"
)
"""The advice for several documents in one row."""
GENERATION_PADDING = (
    "the attention mask hides tokens of a prompt, and the mixers of madbench have no mask but the causal one; generate "
    "from prompts of one length, or from one prompt at a time (only a forward pass of whole texts may pad on the right)"
)
PADDING = (
    "the attention mask hides tokens before others, as padding on the left does, and the mixers of madbench have no "
    "mask but the causal one; pad on the right"
)
LENGTH = (
    "the attention mask hides tokens, and the rows of this mixer depend on the length of the input, so that padding "
    "changes them; give rows of one length"
)
ADVICE = {
    "inputs_embeds": "give input_ids",
    "past_key_values": "an output's 'decoded' is the state of decoding: give it to the next call as decoded",
    "output_attentions": "madbench inspect shows the maps of a mixer",
    "output_hidden_states": "model.model.hidden(input_ids) gives what the logits are a linear map of",
    "token_type_ids": "leave them out",
}
ADVICE |= {"cache": ADVICE["past_key_values"]}
ADVICE |= dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"), PACKED)


def check_no_effect(arguments: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if an argument is given that has no effect on the model.

    ``arguments`` has only such arguments, by name. Values that ask for nothing are accepted: None, False, True for
    ``is_causal``, and zeros for ``token_type_ids``.
    """
    for name, value in arguments.items():
        is_harmless = value is None or value is (name == "is_causal")
        if name == "token_type_ids" and isinstance(value, Tensor):
            is_harmless = not value.any()
        if not is_harmless:
            raise ValueError(f"{name} has no effect on this model; {ADVICE.get(name, 'leave it out')}")


def check_mask(attention_mask: Any, shape: Sequence[int], first: int = 0, may_hide_ends: bool = True) -> None:
    """Raise ``ValueError`` for an attention mask that would change which tokens are visible to a later token.

    Also raised for a mask of a wrong shape, and for a mask with other numbers than 0 and 1.

    Args:
        attention_mask: (B, T), or (B, ``first`` + T) after ``first`` decoded tokens; 1 for a visible, 0 for a hidden
            token. None hides no token.
        shape: the shape (B, T) of the ids.
        first: the number of tokens that were decoded before.
        may_hide_ends: True to accept zeros at the end of a row, where they do not affect earlier tokens.
    """
    if attention_mask is None:
        return
    (batch, length), given = shape, tuple(getattr(attention_mask, "shape", ()))
    if given not in ((batch, length), (batch, first + length)):
        raise ValueError(
            f"attention_mask: its shape is {given}, and the mixers of madbench have no mask but the causal one; "
            f"expected {(batch, first + length)} of ones, with zeros for padding on the right"
        )
    mask = attention_mask.bool()
    if not torch.equal(mask.to(attention_mask.dtype), attention_mask):
        raise ValueError(f"attention_mask: expected ones and zeros; {PACKED}")
    if not may_hide_ends and not mask.all():
        raise ValueError(GENERATION_PADDING)
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError(PADDING)


def check_positions(name: str, positions: Any, shape: Sequence[int], mask: Tensor | None, first: int = 0) -> None:
    """Raise ``ValueError`` unless the positions in each row count up by 1 from ``first``, the number of decoded tokens.

    ``shape`` is the shape (B, T) of the ids. ``positions`` has the shape (B, T), (1, T) or (T,); None is accepted.
    Positions of tokens that ``mask`` hides are not checked. ``name`` is the name of the argument in messages.
    """
    if positions is None:
        return
    if tuple(positions.shape) not in (tuple(shape), (1, shape[1]), (shape[1],)):
        raise ValueError(f"{name}: their shape is {tuple(positions.shape)}; expected {tuple(shape)}, or leave them out")
    expected = torch.arange(first, first + shape[1], device=positions.device).expand(shape)
    differs = positions != expected
    if mask is not None:
        differs = differs & mask[:, -shape[1] :].to(positions.device).bool()
    if differs.any():
        raise ValueError(
            f"{name}: the tokens of a row have the positions {first} to {first + shape[1] - 1} in this order, and "
            f"others have no effect; {PACKED}"
        )
