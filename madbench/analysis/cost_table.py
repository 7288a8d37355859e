"""The costs of the rows of a result table: counted for their mixers, and measured in the stored runs.

Parameters, FLOPs per token and state are counted, for the mixers of all layers. The time of a training step is taken
from the records of runs, and for language models also the peak memory. Times that were measured on two kinds of device
never share a column.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from madbench.analysis.rendering import Listing
from madbench.analysis.scores import Results
from madbench.errors import ConfigError, MadbenchError
from madbench.jobs import PRECISIONS, Job, mapping_text
from madbench.labels import family_of, label_identity, trust
from madbench.labels.names import display_name, row_display_name, with_typed_labels
from madbench.labels.patterns import part_texts
from madbench.mixers.costs import CountedCosts, count_costs
from madbench.suites import Suite, block_count, size_of
from madbench.suites.outcomes import JobOutcome

MOST_REASONS = 3
NOT_NAMED = "name it in the command to count its code"
MIB = 2**20


@dataclass(frozen=True)
class CostColumn:
    """A column of the table of costs: its name and heading, the unit of its numbers, and their decimal digits."""

    name: str
    heading: str
    unit: str
    digits: int = 0


COLUMNS = (
    CostColumn("parameters", "Parameters", "parameters"),
    CostColumn("flops_per_token", "FLOPs/token", "FLOPs"),
    CostColumn("state", "State", "numbers"),
    CostColumn("state_bytes", "State bytes", "bytes"),
    CostColumn("step_ms", "Step ms", "ms", 1),
    CostColumn("memory_mib", "Memory MiB", "MiB"),
)
NOTES = (
    "Parameters, FLOPs and state are those of the mixers of all layers. FLOPs: a forward pass, two per multiply-add. "
    "{pairs} State: all numbers that decoding carries from token to token: recurrent matrices, windows of "
    "convolutions, shifted tokens, caches. State bytes: those numbers at the precision of the runs. Step: seconds of "
    "training per step in the records, without evaluations, mean over seeds and over the settings that all rows have; "
    "runs that shared their steps (--group) are left out. Other jobs on the machine slow a step: madbench bench costs "
    "times labels in turns, with prompts and decoding."
)


@dataclass
class RowCosts:
    """The costs of one row of the table.

    ``values`` has the costs by the name of the column. ``by_length`` has the counted parameters, FLOPs and state for
    each input length in tokens.
    """

    values: dict[str, float] = field(default_factory=dict)
    by_length: dict[int, CountedCosts] = field(default_factory=dict)
    is_causal: bool = True
    """False if a token also sees later tokens."""
    unknown: str = ""
    """The reason why a count is missing. Empty if no count is missing."""


def cost_tables(results: Results, all_pairs: bool = False, rows: Sequence[str] = ()) -> dict[str, Listing]:
    """The table of costs of each suite with a result, by the name of the suite.

    The arguments are those of :func:`cost_table`.
    """
    return {suite.name: cost_table(results, suite, all_pairs, rows) for suite in results.suites_with_result}


def cost_table(results: Results, suite: Suite, all_pairs: bool = False, rows: Sequence[str] = ()) -> Listing:
    """The table of costs of one suite. Each cost has its ratio to the first row of ``results``.

    With ``all_pairs``, the FLOPs of causal mixers include the pairs of each token with all tokens, not only with
    earlier ones. The rows named in ``rows`` come first, in this order. The other rows follow.
    """
    by_row = _runs_by_row(results, suite)
    costs = {name: _count_row_costs(outcomes, all_pairs) for name, outcomes in by_row.items()}
    measured_note = _add_measured(costs, by_row)
    baseline = next(iter(costs))
    names = [name for name in rows if name in costs] + [name for name in costs if name not in rows]
    shown_columns = [column for column in COLUMNS if any(column.name in row.values for row in costs.values())]
    lines, cells = [], []
    for name in names:
        line = [name]
        for column in shown_columns:
            value, first = (costs[row_name].values.get(column.name) for row_name in (name, baseline))
            ratio = value / first if value is not None and first else None
            line.append(_text(value, ratio, column))
            cell = {"label": name, "task": column.name, "mean": value, "ratio": ratio, "baseline": baseline}
            cells.append(cell | {"unit": column.unit})
        lines.append(line)
    length = max((length for row in costs.values() for length in row.by_length), default=0)
    is_causal = all(row.is_causal for row in costs.values())
    caption = _caption(suite, baseline, length, is_causal and not all_pairs, measured_note, costs)
    pairs = "--full-square counts all T pairs of a token." if is_causal and not all_pairs else ""
    notes = " ".join(filter(None, [NOTES.format(pairs=pairs), _by_length(costs)]))
    headings = ["Label", *(column.heading for column in shown_columns)]
    return Listing(names, headings, lines, cells, caption, notes, "tab:costs")


def counted_costs(results: Results, suite: Suite) -> dict[str, dict[str, float]]:
    """The counted costs by the name of the row and then of the column. An unknown cost is missing.

    The columns are ``parameters``, ``flops_per_token``, ``state`` (in numbers) and ``state_bytes``. FLOPs and state
    are those of the longest training inputs.
    """
    return {name: _count_row_costs(outcomes, False).values for name, outcomes in _runs_by_row(results, suite).items()}


def _runs_by_row(results: Results, suite: Suite) -> dict[str, list[JobOutcome]]:
    by_row: dict[str, list[JobOutcome]] = {}
    for outcome in results.runs(suite):
        by_row.setdefault(outcome.row, []).append(outcome)
    return by_row


def _count_row_costs(outcomes: Sequence[JobOutcome], all_pairs: bool) -> RowCosts:
    """The counted costs of the mixers of one row, whose jobs have the given ``outcomes``.

    ``values`` has the counts at the longest input of these jobs. If the costs cannot be counted on this machine,
    ``unknown`` has the reason. Then ``values`` has only the number of parameters, or is empty if no record has it.
    ``all_pairs`` is the argument of :func:`cost_table`.
    """
    costs = RowCosts()
    try:
        for outcome in outcomes:
            check_countable(outcome.job)
            size = size_of(outcome.job)
            if size.mixers is None:
                raise ConfigError(f"the suite {outcome.job.suite} does not state its mixers")
            costs.is_causal = size.is_causal
            if size.seq_len not in costs.by_length:
                counts = count_costs(size.mixers, size.seq_len, all_pairs or not size.is_causal)
                costs.by_length[size.seq_len] = counts
    except MadbenchError as error:
        costs.unknown, costs.by_length = str(error), {}
        with_parameters = [outcome for outcome in outcomes if "mixer_parameters" in outcome.details]
        for outcome in with_parameters[:1]:
            layers = block_count(outcome.job)
            costs.values["parameters"] = layers * outcome.details["mixer_parameters"]
        return costs
    longest = costs.by_length[max(costs.by_length)]
    costs.values = {"parameters": longest.parameters, "flops_per_token": longest.flops_per_token}
    if longest.state is not None:
        of_number = PRECISIONS[outcomes[0].job.training.precision].number_bytes
        costs.values |= {"state": longest.state, "state_bytes": of_number * longest.state}
    costs.unknown = longest.unknown
    return costs


def check_countable(job: Job) -> None:
    """Raise ``ConfigError`` if counting the costs of ``job`` would import code that the user did not allow.

    Counting builds the mixers of the job's label. The label of somebody else's stored run may name any code, so a label
    with code must also stand in the user's command. Also raises if this code was edited after the run.
    """
    parts_with_code = [part for part in part_texts(job.label) if family_of(part).names_code]
    if not all(map(trust.is_allowed, parts_with_code)):
        raise ConfigError(f"{job.label}: {NOT_NAMED}")
    if parts_with_code and not job.family.startswith(label_identity(job.label)):
        raise ConfigError(f"{job.label}: its code was edited after the run")


def _add_measured(costs: Mapping[str, RowCosts], by_row: Mapping[str, Sequence[JobOutcome]]) -> str:
    """Add the columns ``step_ms`` and ``memory_mib``, measured in the runs, to ``costs``. Return a note on them.

    The time of a step is the mean over the task settings that all rows have. Runs without a known time are not timed,
    and rows without a timed run have no memory either. If timed runs differ in device, threads, processes or
    compilation, both columns are left out and the note has the reason. Otherwise the note names the device. The note is
    empty if no time is known, or if the rows have no task setting in common.
    """
    runs = [run for outcomes in by_row.values() for run in outcomes if _step_ms(run) is not None]
    kinds = {_kind(run): run.row for run in runs}
    if not kinds:
        return ""
    if len(kinds) > 1:
        examples = [f"{kind} (such as {row_display_name(row)})" for kind, row in kinds.items()]
        kinds_text = "; ".join(examples[:MOST_REASONS])
        return f"No times: runs of {len(kinds)} kinds of device cannot be compared: {kinds_text}."
    times: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        times.setdefault(run.row, {}).setdefault(_setting(run.job), []).append(_step_ms(run) or 0.0)
    common = set.intersection(*(set(of_row) for of_row in times.values()))
    for row, of_row in times.items():
        if common:
            costs[row].values["step_ms"] = statistics.mean(statistics.mean(of_row[setting]) for setting in common)
        peaks = [line["memory_bytes"] for run in by_row[row] for line in run.curve if "memory_bytes" in line]
        if peaks:
            costs[row].values["memory_mib"] = max(peaks) / MIB
    return f"Step: a training step of the whole model on {next(iter(kinds))}." if common else ""


def _step_ms(run: JobOutcome) -> float | None:
    """Milliseconds per training step of a run.

    None if no time is recorded, if several runs shared their steps (``--group``), or if the run was interrupted and
    resumed in another place.
    """
    seconds, steps = run.details.get("seconds"), run.details.get("steps")
    is_alone = run.details.get("group", 1) == 1 and len(run.details.get("places", [])) < 2
    return 1e3 * seconds / steps if seconds and steps and is_alone else None


def _kind(run: JobOutcome) -> str:
    """The device of a run with its threads, processes and compilation, as text.

    Times of runs with different texts cannot be compared.
    """
    details = run.details
    kind = str(details.get("device", "an unnamed device"))
    if "processor" in details and "threads" in details:
        kind += f", {details['threads']} thread{'' if details['threads'] == 1 else 's'}"
    if details.get("world_size", 1) > 1:
        kind += f", {details['world_size']} processes"
    return f"{kind}, compiled" if details.get("compiled") else kind


def _setting(job: Job) -> str:
    return f"{job.task} {mapping_text(job.setting)}"


def _text(value: float | None, ratio: float | None, column: CostColumn) -> str:
    if value is None:
        return "-"
    number = f"{value:,.{column.digits}f}"
    return number if ratio is None else f"{number} ({ratio:.2f})"


def _caption(
    suite: Suite, baseline: str, length: int, is_half: bool, measured: str, costs: Mapping[str, RowCosts]
) -> str:
    pairs = "causal half" if is_half else "all pairs"
    texts = [f"Costs ({suite.title}), with the ratio to {row_display_name(baseline)}; mixers of all layers."]
    if length:
        texts.append(f"FLOPs: forward, {pairs}, at {length:,} tokens; state after {length:,} tokens.")
    labels_by_reason: dict[str, dict[str, None]] = {}
    for unknown in (row.unknown for row in costs.values() if row.unknown):
        label, _, reason = unknown.rpartition(": ") if unknown.endswith(NOT_NAMED) else ("", "", unknown)
        labels_by_reason.setdefault(with_typed_labels(reason), {})[display_name(label)] = None
    reasons = [f"{_short_list(labels)}: {reason}".removeprefix(": ") for reason, labels in labels_by_reason.items()]
    if reasons:
        texts.append(f"Not counted: {_short_list(reasons, '; ')}.")
    return " ".join(filter(None, [*texts, measured]))


def _short_list(texts: Collection[str], separator: str = ", ") -> str:
    """The first :data:`MOST_REASONS` of ``texts``, joined. If there are more, ``and N more`` follows."""
    and_more = [f"and {len(texts) - MOST_REASONS} more"] if len(texts) > MOST_REASONS else []
    return separator.join([*[*texts][:MOST_REASONS], *and_more])


def _by_length(costs: Mapping[str, RowCosts]) -> str:
    """A sentence with the FLOPs per token and the state of each row at all input lengths but the longest.

    Empty if there is only one length.
    """
    lengths = sorted({length for row in costs.values() for length in row.by_length})
    texts = []
    for length in lengths[:-1]:
        rows = {row_display_name(name): row.by_length[length] for name, row in costs.items() if length in row.by_length}
        states = (
            f"{name} {row.flops_per_token:,.0f} and {'unknown' if row.state is None else f'{row.state:,}'}"
            for name, row in rows.items()
        )
        texts.append(f"at {length:,} tokens {', '.join(states)}")
    return f"FLOPs per token and state of shorter tasks: {'; '.join(texts)}." if texts else ""
