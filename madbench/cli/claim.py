"""``madbench claim``: a claim of one's own, from a sentence."""

from __future__ import annotations

from madbench.cli.options import JsonOption, argument, option, output_option
from madbench.cli.printing import counted, print_json


def claim(
    sentence: argument(str, "SENTENCE", "Such as 'my:gla > S on in_context_recall by 5'."),
    name: option(str | None, "What the claim is called.", show_default="made of the sentence") = None,
    output: output_option("File of claims to append to, or to create.", show_default="printed") = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a claim of your own as data: then findings, power, register and report take it as they take a paper's.

    A > B      A is better than B: its gain is above 0, or above what stands
               behind by, in the units of the column: points of accuracy, nats
               per token, steps.
    A ~ B      As good, within what stands behind within: neither a gain nor a
               loss as large as that.
    Both sides are labels or sets, and the mean over their pairs decides; with
    every in front each pair has to. FACTOR in LABELS has the pairs of these
    labels that differ in that factor alone.

    [bold]Examples[/bold]

      madbench claim 'G-cg-q > S on in_context_recall by 5' -o my_claims.yaml
      madbench claim 'cd:gla ~ S on compression,memorization within 2'
      madbench claim 'every @quick > S on mad_average' --name all
      madbench claim 'conv in @quick on mad_average,loss_l5'
      madbench findings --claims my_claims.yaml
    """
    import yaml

    from madbench.analysis.claim_sentences import add_claim, parse_claim

    made, entry = parse_claim(sentence, name or "")
    if output is not None:
        count = add_claim(entry, output)
    if as_json:
        print_json({**entry, "pairs": made.pairs})
    elif output is None:
        print(yaml.safe_dump({"claims": [entry]}, sort_keys=False, allow_unicode=True, width=10_000), end="")
    else:
        pairs = ", ".join(f"{a} - {b}" for a, b in made.pairs[:5]) + ", ..." * (len(made.pairs) > 5)
        print(f"{output}: {made.name}, {counted(len(made.pairs), 'pair')}: {pairs}; {counted(count, 'claim')} in all")
        print(f"next: madbench findings --claims {output}")
