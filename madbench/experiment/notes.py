"""Notes for the user on the planned rows of an experiment, shown before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from madbench.config import Override, short_repr
from madbench.errors import ConfigError, no_effect
from madbench.jobs import BlocksSettings, Job
from madbench.labels import Label, family_of
from madbench.labels.budgets import LEAST_MATCHED, MOST_MATCHED
from madbench.labels.patterns import part_texts
from madbench.mixers import label_traits, solve
from madbench.mixers.sequence import block_labels
from madbench.rows import Row, SuiteRow
from madbench.suites import Suite, block_count, has_blocks, size_of
from madbench.suites.compute import compute_details
from madbench.suites.overrides import Plan
from madbench.suites.planning import choosing_advice, choosing_note, run_key, solve_mixers


def notes_on_equal_rows(rows: Sequence[SuiteRow], plans: Sequence[Plan]) -> list[str]:
    """A list with a note on rows that train the same model. Empty if there are no such rows.

    ``plans`` has the plan of each row, which says what settings have no effect.

    Two rows of a label train the same model if they differ only in settings without effect on the label, or in settings
    that do not change the ranks that the budget allows. Raises ``ConfigError`` if two rows have the same jobs for
    another reason. Also raises it for a varied key that has no effect on any row.
    """
    by_jobs: dict[frozenset[str], SuiteRow] = {}
    without_effect = {row.row: set(plan.without_effect) for row, plan in zip(rows, plans)}
    for row in rows:
        other = by_jobs.setdefault(frozenset(job.id for job in row.jobs), row)
        ours, theirs = ({change.without_suite() for change in planned_row.row.changes} for planned_row in (row, other))
        differing = ours ^ theirs
        if other is not row and not differing & (without_effect[row.row] | without_effect[other.row]):
            raise ConfigError(
                f"the rows {short_repr(other.name)} and {short_repr(row.name)} train the same jobs; leave one out"
            )
    changed_labels = {row.row.label for row in rows if row.row.changes}
    canonical_ids: dict[Row, Hashable] = {  # a label without changed rows has one row, so that its name is enough
        row.row: _canonical_ids(row) if row.row.label in changed_labels else row.row.label for row in rows
    }
    for key in dict.fromkeys(change.path for row in rows for change in row.row.changes):
        groups: dict[tuple[Hashable, ...], list[Hashable]] = {}
        for grid_row, what in canonical_ids.items():
            without_value = (grid_row.label, *(change for change in grid_row.changes if change.path != key))
            groups.setdefault(without_value, []).append(what)
        compared_groups = [group for group in groups.values() if len(group) > 1]
        if compared_groups and all(len(set(group)) == 1 for group in compared_groups):
            raise no_effect(key, "on any row", "each label trains the same model for all its values")
    names_by_jobs: dict[Any, list[str]] = {}
    for grid_row, what in canonical_ids.items():
        names_by_jobs.setdefault(what, []).append(grid_row.name)
    equal_names = [" = ".join(names) for names in names_by_jobs.values() if len(names) > 1]
    and_more = f" and {len(equal_names) - 3} more" if len(equal_names) > 3 else ""
    equal_rows = f"{'; '.join(equal_names[:3])}{and_more}"
    return (
        [f"rows that train the same model, because the label or its budget leaves no choice: {equal_rows}"]
        if equal_names
        else []
    )


def note_without_effect(override: Override, plans: Sequence[Plan]) -> str:
    """A note on labels on which ``override`` has no effect, although it is given for all rows.

    ``plans`` say on which labels it has none. Empty if there are no such labels.
    """
    labels = dict.fromkeys(label for plan in plans for label in plan.without_effect.get(override, ()))
    return f"{override.user_word} has no effect on {', '.join(labels)} and is ignored there" if labels else ""


def notes_on_schedules(suite: Suite, rows: Sequence[SuiteRow]) -> list[str]:
    """Notes on doubtful learning-rate schedules, each with the tasks that have the schedule.

    Equal warnings are merged.
    """
    tasks: dict[str, dict[str, None]] = {}
    for row in {(row.protocol.profile_name, row.protocol.overrides): row for row in rows}.values():
        for job in row.jobs:
            schedule = suite.schedule(job)
            tasks.setdefault(schedule.warning if schedule else "", {})[job.task] = None
    return [f"{', '.join(of_clause)}: {clause}" for clause, of_clause in tasks.items() if clause]


def notes_on_rates(rows: Sequence[SuiteRow]) -> list[str]:
    """A list with one note: each label's first seed chooses the learning rate and weight decay for its other seeds.

    The list is empty if there is only one seed, or if no label has several rates or decays in one task setting. Jobs of
    the fidelity ``published`` do not count.
    """
    seeds = {job.seed for row in rows for job in row.jobs}
    rates_by_label: dict[str, set[tuple[float, float]]] = {}
    for row in rows:
        for job in row.jobs if row.protocol.fidelity == "corrected" else ():
            rates = (job.training.learning_rate, job.training.weight_decay)
            rates_by_label.setdefault(f"{row.name} {job.task} {job.setting}", set()).add(rates)
    has_several = any(len(rates) > 1 for rates in rates_by_label.values())
    if not has_several or len(seeds) < 2:
        return []
    return [f"{choosing_note(len(seeds))} {choosing_advice(len(seeds))}".strip()]


def note_on_groups(jobs: Sequence[Job], group: int | None) -> str:
    """A note on jobs that train alone although ``--group`` asks for shared steps. Empty if there are no such jobs.

    Raises ``ConfigError`` if all jobs train alone. ``group`` is the value of ``--group``.
    """
    if group is None or group < 2:
        return ""
    optimizers = Counter(job.training.optimizer for job in jobs)
    alone = {name: count for name, count in optimizers.items() if name != "adamw"}
    if not alone:
        return ""
    counts = " and ".join(f"{count} of {len(jobs)} jobs by {name}" for name, count in alone.items())
    text = f"--group {group} has no effect on {counts}: each trains alone, as only AdamW shares steps"
    if len(alone) == len(optimizers):
        raise ConfigError(f"{text}; leave the option out")
    return text


def notes_on_heads(rows: Sequence[SuiteRow]) -> list[str]:
    """Notes on models with heads of unequal or odd widths, and on mixers whose number of heads is not ``n_head``."""
    notes: dict[str, None] = {}
    for row in rows:
        job = row.jobs[0]
        if has_blocks(job):
            for label in dict.fromkeys(block_labels(job.label, block_count(job))):
                notes |= dict.fromkeys(_notes_on_heads_of(label, job))
    return list(notes)


def _notes_on_heads_of(label: Label, job: Job[BlocksSettings]) -> Iterator[str]:
    """Yield a note if the mixers of ``label`` in the model of ``job`` cannot have ``n_head`` heads of equal width.

    There are three reasons: the label needs another number of heads, because its parts share the heads evenly,
    ``n_head`` does not divide ``d_model``, or the width of a head is odd and the label needs an even width.
    """
    traits = label_traits(label)
    if not traits.has_heads:
        return
    d_model, n_head = job.model.d_model, job.model.n_head
    heads = n_head
    if traits.head_groups > 1:
        mixers = solve_mixers(job, size_of(job).seq_len)
        heads = next(mixer.size.n_head for mixer, _ in mixers.kinds if mixer.label == label)
    if heads != n_head:
        yield f"{label} has {heads} heads in place of {n_head}, because its parts share the heads evenly"
    elif d_model % n_head:
        yield f"n_head {n_head} does not divide d_model {d_model}: {_uneven('S', job, n_head)}"
    elif traits.has_even_heads and d_model % (2 * n_head):
        reason = f"d_model {d_model} / n_head {n_head} is odd, and labels with p take heads of even width"
        yield f"{reason}: {_uneven('S-p', job, 2 * n_head)}"


def notes_on_budget(rows: Sequence[SuiteRow]) -> list[str]:
    """Notes on labels of users' modules that do not match the budget. Each says how to match it. One note per label."""
    notes: dict[str, None] = {}
    for row in rows:
        job = row.jobs[0]
        modules = [part for part in part_texts(job.label) if family_of(part).names_code]
        for mixer, _ in solve_mixers(job, size_of(job).seq_len).kinds if modules and has_blocks(job) else ():
            label = str(mixer.label)
            rule = mixer.size.rule
            ratio = rule.ratio(mixer)
            is_matched = LEAST_MATCHED <= ratio <= MOST_MATCHED
            if label in modules and not is_matched:
                place = label.partition("(")[0]
                notes[
                    f"{label} has {ratio:.2f} times the {rule.name} of softmax attention: to match them, give "
                    f"arguments, {place}(NAME=VALUE), or a classmethod {place.rpartition('.')[2]}.fit(cls, d_model, "
                    "n_head, max_len, budget) that returns them"
                ] = None
    return list(notes)


def notes_on_compute(suite: Suite, rows: Sequence[SuiteRow]) -> list[str]:
    """Notes on rows with the budget ``compute`` whose training FLOPs still differ from those of softmax attention.

    This budget chooses the number of steps so that the FLOPs agree as far as whole steps allow. One note per row, with
    the number of steps and the difference. Empty for other budgets.
    """
    notes: dict[str, None] = {}
    for row in rows:
        jobs = {run_key(job): job for job in row.jobs}.values()
        details = [compute_details(job, size_of).get("compute") for job in jobs]
        matched = [entry for entry in details if entry and entry["of_softmax"] != 1]
        if matched:
            shares = sorted(f"{entry['steps'] / entry['steps_of_softmax']:.3f}" for entry in matched)
            remainder = max((entry["of_softmax"] - 1 for entry in matched), key=abs)
            notes[
                f"{suite.title.lower()}: {row.name} trains {' to '.join(dict.fromkeys((shares[0], shares[-1])))} times "
                f"the steps of softmax attention; its training FLOPs differ by at most {remainder:+.2%}"
            ] = None
    return list(notes)


def _uneven(label: str, job: Job[BlocksSettings], step: int) -> str:
    """A clause for a note on a job whose ``d_model`` is not a multiple of ``step``, so that heads have unequal widths.

    The clause states the ranks of softmax attention at this width, the share of the budget that it uses, and the
    nearest multiples of ``step``. ``label`` is the label of softmax attention, ``S`` or ``S-p``.
    """
    d_model = job.model.d_model
    attention = solve(label, d_model, job.model.n_head, 1, job.budget)
    ranks, narrower_width = attention.ranks, d_model // step * step
    widths = " or ".join(str(width) for width in (narrower_width, narrower_width + step) if width)
    return (
        f"softmax attention ({label}) has r_qk {ranks['qk']} and r_vo {ranks['vo']} in place of {d_model}, and"
        f" {attention.ratio:.3f} of its budget; d_model {widths} is shared evenly"
    )


def _canonical_ids(row: SuiteRow) -> frozenset[str]:
    """The ids of the canonical forms of the row's jobs. They are equal for rows that train the same models.

    Only jobs of the first seed are considered, because other seeds have the same settings.
    """
    return frozenset(row.protocol.suite.canonical(job).id for job in row.jobs if job.seed == row.jobs[0].seed)
