"""``madbench new claim``: a user's claim, written from a sentence."""

from __future__ import annotations

from pathlib import Path

from madbench.analysis.marked_text import MINUS
from madbench.cli.shared.printing import count_text, print_json


def write_claim(sentence: str, name: str | None, output: Path | None, as_json: bool) -> None:
    """Parse the claim in ``sentence``, add it to the file ``output``, and print it.

    Without ``output`` it is only printed. ``name`` is None for a name made from the sentence. If ``as_json`` is True,
    the claim is printed as JSON with its pairs of labels.
    """
    import yaml

    from madbench.analysis.claims.sentences import add_claim, parse_claim

    claim, entry = parse_claim(sentence, name or "")
    if output is not None:
        count = add_claim(entry, output)
    if as_json:
        print_json({**entry, "pairs": claim.pairs})
    elif output is None:
        print(yaml.safe_dump({"claims": [entry]}, sort_keys=False, allow_unicode=True, width=10_000), end="")
    else:
        shown_pairs = [f"{a} {MINUS} {b}" for a, b in claim.pairs[:5]]
        pairs = ", ".join([*shown_pairs, "..."] if len(claim.pairs) > 5 else shown_pairs)
        print(
            f"{output}: {claim.name}, {count_text(len(claim.pairs), 'pair')}: {pairs}; "
            f"{count_text(count, 'claim')} in all"
        )
        print(f"next: madbench findings --claims {output}")
