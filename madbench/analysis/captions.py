"""What a reader must know to trust the numbers of a suite: data, sizes, evaluation, devices, what is missing, noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from madbench.analysis.protocols import language_protocol
from madbench.experiment import Protocol
from madbench.jobs import Fidelity
from madbench.suites import LANGUAGE, Suite

if TYPE_CHECKING:

    from madbench.analysis.stored import Results


def accuracy_meaning(fidelity: Fidelity) -> str:
    """What the accuracy of a table is, and on what it was chosen where that is not the validation set."""
    if fidelity == "published":
        return "the reference implementation's accuracy (macro within each batch of 128), chosen on the test set"
    return "token accuracy over all test targets"


def protocol_sentences(results: Results, suite: Suite) -> list[str]:
    """What the runs of one suite share, where they ran and how many diverged."""
    if suite is LANGUAGE:
        runs = results.language_runs
        statuses = [run.record.status for run in runs]
        details = [str(run.record.details.get("device", "an unnamed device")) for run in runs]
        protocol = language_protocol(runs[0])
    else:
        collected = results.collected
        statuses, details = collected.status.tolist(), collected.device.dropna().unique()
        protocol = results.rows(suite)[0].protocol
    return [*setting_sentences(protocol), *_devices(details), *_diverged(statuses)]


def setting_sentences(protocol: Protocol) -> list[str]:
    """Profile or preset, sizes, corpus, fidelity and budget."""
    changes = f" with {', '.join(protocol.overrides)}" if protocol.overrides else ""
    model = protocol.profile.model_config()
    sizes = f"d_model {model.d_model}, {model.n_layer} blocks, {model.n_head} heads"
    noun, name = protocol.profile.noun.capitalize(), protocol.profile_name
    if protocol.suite is not LANGUAGE:
        return [
            f"{noun} {name}{changes}: {sizes}, {protocol.precision}.",
            f"Fidelity {protocol.fidelity}; budget {protocol.budget}.",
        ]
    training = protocol.profile.training_config(protocol.precision)
    positions = "learned" if model.positions == "learned" else "no"
    return [
        _corpus(protocol.corpus),
        f"{noun} {name}{changes}: {sizes}, context {model.seq_len}, {positions} positions, {protocol.precision}; "
        f"{training.steps:,} steps of {training.tokens_per_step:,} tokens.",
        f"Budget {protocol.budget}.",
    ]


def _corpus(corpus: Any) -> str:
    parts = [f"Corpus {corpus.name} ({corpus.digest[:8]})"]
    if "tokenizer" in corpus.description:
        parts.append(f"tokens: {corpus.description['tokenizer']}")
    for split, name in (("train", "training"), ("val", "validation")):
        if counts := corpus.description.get("splits", {}).get(split):
            size = f" of {counts['bytes']:,} bytes" if counts.get("bytes") else ""
            parts.append(f"{counts['tokens']:,} {name} tokens{size}")
    return ", ".join(parts) + "."


def _devices(names: Iterable[Any]) -> list[str]:
    return [f"Trained on {', '.join(sorted(set(map(str, names)))) or 'no device yet'}."]


def _diverged(statuses: Sequence[str]) -> list[str]:
    count = list(statuses).count("diverged")
    return [f"{count} of {len(statuses)} runs diverged."] if count else []
