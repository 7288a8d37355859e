"""Regenerate the tables and verdicts on a page of measured runs, from the archives and the registration next to it.

    python studies/evidence.py [results/measured/README.md] [--only NAME ...] [--check]

The text between ``<!-- NAME -->`` and ``<!-- end NAME -->`` is generated, the rest is written by hand. NAME is a key of
:data:`BLOCKS`, or ``tasks`` and the name of a registered claim, or ``verdicts`` and the name of an archive of the same
profile. An archive named after a profile has its runs; PROFILE-seeds has more seeds of all labels, and PROFILE-noise
many more seeds of a few labels. Tables use the first two, the block ``labels`` all three. The registration and the
forecasts belong to the suite's default profile and are judged only by the archive of its name. ``--check`` writes
nothing, and exits with 1 if the page differs from the generated text. All blocks take about a minute.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from madbench.analysis.agreement import Agreement
from madbench.analysis.audit import ColumnAudit, agreement_text, audit, outcome_column
from madbench.analysis.claims import claims_on
from madbench.analysis.claims.testing import test_claim
from madbench.analysis.claims.thresholds import published_gain
from madbench.analysis.findings import Finding, choice_note, findings_by_paper
from madbench.analysis.findings_table import findings_table
from madbench.analysis.inference import LEVEL, Difference, Sample, combination
from madbench.analysis.power import ENOUGH_POWER, MOST_SEEDS, seeds_needed
from madbench.analysis.quantities import difference_text, heading, is_average, p_text, parts_of, signed_text
from madbench.analysis.registered_findings import EXPLORATORY, registered_findings
from madbench.analysis.registration import Registration, load_registration
from madbench.analysis.samples import Samples, samples_of
from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.config import seed_list
from madbench.errors import MadbenchError
from madbench.files import write_atomically
from madbench.labels import available_sets, expand
from madbench.store.archive import SUFFIX, unpack
from madbench.store.runs import Store
from madbench.suites import main_suite
from madbench.suites.addressing import has_profile

PAGE = Path("results/measured/README.md")
WHOLE = "@table1"
"""The labels that an archive must have for its profile to be judged."""
JUDGED = ("@judging", "@judging-matched")
"""The sets of labels whose order is compared with the published order. No setting was chosen on them."""
IN_PILOTS = ("S-c", "R-p", "R-c", "S-g-q")
"""Labels of the first set of :data:`JUDGED` that were in pilots before the labels were divided into sets."""
AVERAGE_AIM, TASK_AIM, LOSS_AIM = 0.75, 0.6, -0.65
"""Targets: rank correlations of the average and of each task with the published column, and of the average with L5."""
SOLVED_AIM, HEURISTIC_AIM = 1 / 3, 1 / 5
"""Targets per task: the largest share of labels that every seed solves, and that stay at the best answer without
context.
"""
STATES = {"supported": "holds at this size", "contradicted": "does not hold at this size"}
OPEN = "cannot be told"
SEEDS, NOISE = "-seeds", "-noise"
"""Suffixes of archives with more seeds of a profile: of all labels, and many seeds of a few labels."""


class Evidence:
    """The archives, the registration and the forecasts in a folder, unpacked below ``work``."""

    def __init__(self, folder: Path, work: Path):
        self.folder, self.work = folder, work
        self.profile = main_suite().default

    @functools.cached_property
    def stores(self) -> dict[str, Store]:
        """The stores by the name of their archive."""
        stores = {}
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            stores[name] = Store.open(self.work / name)
            if problems := unpack(path, stores[name]).problems:
                raise MadbenchError(f"{path}: {problems[0]}")
        return stores

    @property
    def profiles(self) -> list[str]:
        """The profiles with all labels, the profile of the registration last."""
        names = (name for name in self.stores if has_profile(main_suite(), name))
        return sorted(names, key=lambda name: name == self.profile)

    def selection(self, name: str, labels: Sequence[str] = (), further: Sequence[str] = (SEEDS,)) -> Selection:
        """The runs of an archive with these labels, or with all labels if ``labels`` is empty.

        If the archive is named after a profile, the runs of the ``further`` archives of this profile are included.
        """
        profile, names = self.profile, [name]
        if name in self.profiles:
            profile, names = name, [name, *(name + part for part in further if name + part in self.stores)]
        return Selection(
            labels=expand(labels),
            profile=profile,
            tasks=main_suite().usual_tasks(),
            results=self.join_stores(names).root,
        )

    def join_stores(self, names: Sequence[str]) -> Store:
        """A store with the runs of these archives."""
        if len(names) == 1:
            return self.stores[names[0]]
        root = self.work / "+".join(names)
        is_new = not root.exists()
        store = Store.open(root)
        for name in names if is_new else ():
            unpack(self.folder / f"{name}{SUFFIX}", store)
        return store

    def results(self, name: str, labels: Sequence[str] = ()) -> Results:
        """The results of :meth:`selection`."""
        return self.selection(name, labels).select()

    @functools.cached_property
    def registered(self) -> tuple[Registration, Results]:
        return load_registration(self.folder / f"{self.profile}.registered.json", self.stores[self.profile].root)

    @functools.cached_property
    def rows(self) -> list[Finding]:
        """The registered findings."""
        return [row for row in registered_findings(*self.registered) if row.claim.group != EXPLORATORY]

    @functools.cached_property
    def samples(self) -> Samples:
        return samples_of(self.registered[1].scores)


def archives(evidence: Evidence) -> str:
    """The table of archives: number of runs, number of runs from a checkout with changes, and the command for them."""
    sets = {frozenset(expand([f"@{name}"])): f"@{name}" for name in available_sets()}
    lines = ["| File | Runs | From a changed checkout | Made by |", "| --- | ---: | ---: | --- |"]
    for name, store in evidence.stores.items():
        jobs = list(store.jobs().values())
        labels = {job.label for job in jobs}
        profiles = {main_suite().nearest(job)[0] for job in {job.task: job for job in jobs}.values()}
        words = [sets.get(frozenset(labels), " ".join(sorted(labels))), "-p", *sorted(profiles)]
        words += ["-t", main_suite().name, "--seeds", seed_list({job.seed for job in jobs})]
        checkouts = [record.details.get("git") for record in store.records({job.id for job in jobs}).values()]
        changed = sum(bool(checkout and checkout["dirty"]) for checkout in checkouts)
        lines.append(f"| {name}{SUFFIX} | {len(jobs):,} | {changed or ''} | `madbench sweep {' '.join(words)}` |")
    return "\n".join(lines)


def costs(evidence: Evidence) -> str:
    """The seconds that the runs of each archive took, as recorded on one core each."""
    lines = ["| Runs | Mean | Median | Sum, on two cores |", "| --- | ---: | ---: | ---: |"]
    for name, store in evidence.stores.items():
        seconds = [record.details["seconds"] for record in store.records(store.jobs()).values()]
        times = (
            f"{statistics.mean(seconds):.1f} s | {statistics.median(seconds):.1f} s | {sum(seconds) / 7200:.1f} hours"
        )
        lines.append(f"| `{name}{SUFFIX}`, {len(seconds):,} | {times} |")
    return "\n".join(lines)


def correlations(evidence: Evidence) -> str:
    """Spearman's correlations with the published columns, one column per set of labels and profile."""
    columns: dict[str, list[ColumnAudit]] = {}
    for labels in JUDGED:
        for profile in evidence.profiles:
            name = f"{profile}, {len(expand([labels]))} of {labels}"
            columns[name] = audit(evidence.results(profile, [labels]))
    lines = [f"| Spearman's correlation | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for place, first in enumerate(next(iter(columns.values()))):
        rows = [of_set[place] for of_set in columns.values()]
        lines.append(_line(f"{heading(first.column)} with the published column", [row.published for row in rows]))
        if is_average(first.column):
            outcome = heading(outcome_column(first.column))
            lines.append(_line(f"{heading(first.column)} with the published {outcome}", [row.outcome for row in rows]))
    return "\n".join(lines)


def pilots(evidence: Evidence) -> str:
    """The correlations of the average, over the judging labels that no pilot run used."""
    chosen = [label for label in expand([JUDGED[0]]) if label not in IN_PILOTS]
    (average,) = (row for row in audit(evidence.results(evidence.profile, chosen)) if is_average(row.column))
    return (
        f"Over the {len(chosen)} labels of `{JUDGED[0]}` that were in no pilot, the {heading(average.column)} of"
        f" `{evidence.profile}` has a rank correlation of {agreement_text(average.published)} with the published one,"
        f" and of {agreement_text(average.outcome)} with the published {heading(outcome_column(average.column))}."
    )


def aims(evidence: Evidence) -> str:
    """The targets of the default profile, and the targets that are reached and missed."""
    return aims_table(*(audit(evidence.results(evidence.profile, [name])) for name in JUDGED))


def aims_table(of_all: Sequence[ColumnAudit], of_matched: Sequence[ColumnAudit]) -> str:
    """The targets that audits of two sets of labels, :data:`JUDGED`, reach and miss."""
    (average, matched_average) = (next(row for row in rows if is_average(row.column)) for rows in (of_all, of_matched))
    columns = [row for row in of_all if not is_average(row.column)]
    name, loss = heading(average.column), heading(outcome_column(average.column))
    lines = ["| Aim | Aimed at | Reached | Missed |", "| --- | ---: | --- | --- |"]

    def add(aim: str, line: str, results: Sequence[tuple[str, bool]]) -> None:
        reached, missed = ("; ".join(text for text, is_met in results if is_met is side) for side in (True, False))
        lines.append(f"| {aim} | {line} | {reached or '–'} | {missed or '–'} |")

    text = f"{name} with the published column, {JUDGED[1]}"
    number = matched_average.published
    add(text, f"{AVERAGE_AIM:+.2f} or more", [(agreement_text(number), number.value >= AVERAGE_AIM)])
    numbers = {JUDGED[1]: matched_average.outcome, JUDGED[0]: average.outcome}
    results = [(f"{where} {agreement_text(number)}", number.value <= LOSS_AIM) for where, number in numbers.items()]
    add(f"{name} with the published {loss}", f"{LOSS_AIM:+.2f} or less", results)
    results = [(f"{heading(r.column)} {agreement_text(r.published)}", r.published.value >= TASK_AIM) for r in columns]
    add(f"Each task with the published column, {JUDGED[0]}", f"{TASK_AIM:+.2f} or more", results)
    shares = [
        ("every seed solves", SOLVED_AIM, [row.solved for row in columns]),
        ("at the best answer without context", HEURISTIC_AIM, [row.at_heuristic for row in columns]),
    ]
    for what, most, of_columns in shares:
        results = [(f"{heading(row.column)} {share:.0%}", share <= most) for row, share in zip(columns, of_columns)]
        add(f"Labels of {JUDGED[0]}, {what}", f"{most:.0%} or fewer", results)
    return "\n".join(lines)


def labels(evidence: Evidence) -> str:
    """The table of the labels of the default profile, with all seeds."""
    return evidence.selection(evidence.profile, [WHOLE], (SEEDS, NOISE)).table().to_markdown().strip()


def forecasts(evidence: Evidence) -> str:
    """The forecast of each registered gain next to the measured gain."""
    with open(evidence.folder / f"{evidence.profile}_forecasts.csv", newline="", encoding="utf-8") as file:
        forecast = {(row["claim"], row["column"]): row for row in csv.DictReader(file)}
    rows = [row for row in evidence.rows if (row.claim.name, row.quantity) in forecast]
    lines = ["| Claim | Forecast | Ours | Within the interval | On what the forecast was based |"]
    lines.append("| --- | ---: | ---: | ---: | --- |")
    inside = 0
    for row in rows:
        words = forecast[row.claim.name, row.quantity]
        number = float(words["forecast"])
        gain = measured_gain(row)
        is_inside = gain.low <= number <= gain.high
        inside += is_inside
        texts = [row.claim.title, signed_text(number, row.quantity, 0), difference_text(gain, row.quantity)]
        lines.append(f"| {' | '.join([*texts, 'yes' if is_inside else 'no', words['basis']])} |")
    return "\n".join([*lines, "", f"{inside} of {len(rows)} intervals include the forecast number."])


def verdicts(evidence: Evidence) -> str:
    """The table of the registered findings."""
    table = findings_table(evidence.rows).of_origin(evidence.registered[1].origin())
    return table.to_markdown().strip()


def further_verdicts(evidence: Evidence, name: str) -> str:
    """The findings on the runs of an archive, for the claims whose labels it has. They were not registered."""
    if name not in evidence.stores:
        raise MadbenchError(f"block 'verdicts {name}': expected one of {', '.join(evidence.stores)}")
    results = evidence.results(name)
    claims = claims_on(results.scores.label.unique())
    rows = [row for row in findings_by_paper(results.scores, claims, chosen_on=results.chosen_on) if not row.missing]
    return findings_table(rows).of_origin(results.origin()).to_markdown().strip()


def claims(evidence: Evidence) -> str:
    """The state of every registered claim (holds at this size, does not hold, cannot be told) and the reason."""
    states = [STATES.get(row.verdict, OPEN) for row in evidence.rows]
    holding, failing, unknown = (states.count(state) for state in (*STATES.values(), OPEN))
    counts = f"{holding} hold at this size, {failing} do not, and of {unknown} it cannot be told"
    choice = choice_note(row.chosen_on for row in evidence.rows)
    lines = [f"Of {len(states)} registered statements {counts}{choice and f'; {choice}'}.", ""]
    for row, state in zip(evidence.rows, states):
        place = f"{row.claim.source}; " if row.claim.source else ""
        name = f"**{row.claim.title}**, {heading(row.quantity)} ({place}`{row.claim.name}`)"
        ours = difference_text(measured_gain(row), row.quantity)
        numbers = f"published {signed_text(row.published, row.quantity)}, ours {ours}"
        over = f" over {row.gain_name}" if row.claim.rivals else ""
        sentences = [f"{name}: *{state}*. In points, {numbers}{over}.", reason(row)]
        if state == OPEN:
            sentences += [limits(row, evidence.samples), seeds_text(row, evidence.samples)]
        if len(row.pairs) > 1 and row.claim.judges == "mean":
            pairs = (f"{' − '.join(pair)} {signed_text(gain, row.quantity)}" for pair, gain in row.pairs.items())
            sentences.append(f"By pair: {', '.join(pairs)}.")
        lines.append(f"- {' '.join(filter(None, sentences))}")
    return "\n".join(lines)


def measured_gain(row: Finding) -> Difference:
    """The measured gain of a finding. Raises ``MadbenchError`` if no pair of its claim is stored."""
    if row.ours is None:
        raise MadbenchError(f"{row.claim.name}, {row.quantity}: no run of {', '.join(row.missing)} is stored")
    return row.ours


def reason(row: Finding) -> str:
    """The reason for a finding's verdict, in one or two sentences."""
    if math.isnan(row.p) or row.verdict in STATES:
        return row.reason
    sign, gain = row.claim.sign(row.quantity), measured_gain(row)
    low, high = sorted((sign * gain.low, sign * gain.high))
    threshold = f"the threshold of {signed_text(row.threshold, row.quantity)}" if row.threshold else "0"
    if low > sign * row.threshold:
        text = f"Its interval is on the claim's side of {threshold}, but p is"
    elif high < sign * row.threshold:
        text = f"Its interval is on the other side of {threshold}, but p is"
    else:
        text = f"Its interval includes {threshold}; p"
    text += f" {p_text(row.p_holm)} after Holm over {row.tested} tests."
    if row.threshold and row.claim.expectation(row.quantity) == "gain" and gain.low > 0:
        text += " The interval shows that there is a gain, but not that it is large."
    return text


def limits(row: Finding, samples: Samples) -> str:
    """A sentence that names tasks where scores leave no room for a difference; empty if there are none."""
    compared = {task: [samples[task][label] for label in row.labels] for task in parts_of(row.quantity) or ()}

    def where(holds: Callable[[Sample], bool]) -> str:
        return " and ".join(heading(task) for task, of_labels in compared.items() if all(map(holds, of_labels)))

    solved = where(lambda sample: sample.solved == sample.n)
    unlearned = where(lambda sample: not sample.has_learned)
    sentences = [f"Every label solves {solved} with every seed." if solved else ""]
    sentences += [f"No label is above the best answer without context on {unlearned}." if unlearned else ""]
    return " ".join(filter(None, sentences))


def seeds_text(row: Finding, samples: Samples) -> str:
    """A sentence on the number of seeds that would decide a claim; empty if it cannot be tested."""
    if math.isnan(row.p):
        return ""
    of_labels = samples[row.quantity]
    test = test_claim(row.claim, row.quantity, of_labels, fixed_threshold=row.threshold)
    name, smallest = test.smallest
    if smallest is None:
        return ""
    terms = [(weight, of_labels[label]) for weight, label in row.claim.gains(test.cases, row.quantity)[name]]
    seeds, _ = seeds_needed(terms, smallest.estimate - test.threshold, LEVEL / row.tested)
    number = f"About {seeds} seeds" if seeds else f"More than {MOST_SEEDS} seeds"
    return f"{number} of every label would decide it in {ENOUGH_POWER:.0%} of cases, if this is the true gain."


def tasks(evidence: Evidence, name: str) -> str:
    """The gain of a registered claim by task under every profile, next to the published gain.

    Other archives of the default profile have one column each, for the pairs whose labels they have.
    """
    (claim,) = (claim for claim in evidence.registered[0].claims if claim.name == name)
    every, quantity = range(len(claim.pairs)), claim.quantities[0]
    sources: list[tuple[str, Samples, Sequence[int]]] = [
        (p, samples_of(evidence.results(p, claim.labels(every)).scores), every) for p in evidence.profiles
    ]
    shown = {name for profile in evidence.profiles for name in (profile, profile + SEEDS)}
    for further in [key for key in evidence.stores if key not in shown]:
        samples = samples_of(evidence.results(further).scores)
        stored = [case for case in every if {*claim.labels([case])} <= samples.get(quantity, {}).keys()]
        if stored:
            sources.append((further, samples, stored))
    titles = [
        key + "".join(f", {' − '.join(claim.pairs[case])}" for case in cases if len(cases) < len(every))
        for key, _, cases in sources
    ]
    lines = [f"| {claim.title} | Published | {' | '.join(titles)} |", "| --- |" + " ---: |" * (1 + len(titles))]
    for task in (*parts_of(quantity), quantity):
        texts = [signed_text(published_gain(claim, task, every), task)]
        for _, samples, cases in sources:
            terms = [(weight, samples[task][label]) for weight, label in next(iter(claim.gains(cases, task).values()))]
            texts.append(difference_text(combination(terms, tests_solved=True), task))
        lines.append(f"| {heading(task)} | {' | '.join(texts)} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[Evidence], str]] = {
    made.__name__: made for made in (archives, correlations, pilots, aims, labels, forecasts, verdicts, claims, costs)
}
"""The function that makes a block, by the block's name."""
PARTS: dict[str, Callable[[Evidence, str], str]] = {"tasks": tasks, "verdicts": further_verdicts}
"""The function that makes a block of one claim or archive, by the word before its name."""


def block(name: str, evidence: Evidence) -> str:
    """The text of a block by its name. Raises ``MadbenchError`` for an unknown name."""
    word, _, part = name.partition(" ")
    if part and word in PARTS:
        return PARTS[word](evidence, part)
    if name not in BLOCKS:
        raise MadbenchError(
            f"block {name!r}: expected one of {', '.join(BLOCKS)}, tasks and a claim, or verdicts and an archive"
        )
    return BLOCKS[name](evidence)


def renew_blocks(text: str, evidence: Evidence, only: Collection[str] = ()) -> str:
    """The page with its blocks regenerated, or only the blocks in ``only``."""

    def made(match: re.Match[str]) -> str:
        name = match["name"]
        if only and name not in only:
            return match[0]
        return f"<!-- {name} -->\n\n{block(name, evidence)}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- (?P<name>[a-z -]+) -->\n.*?<!-- end (?P=name) -->", made, text, flags=re.DOTALL)


def _line(name: str, found: Sequence[Agreement]) -> str:
    return f"| {name} | {' | '.join(map(agreement_text, found))} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?", default=PAGE, help="beside the archives")
    parser.add_argument("--only", nargs="+", default=(), help="names of blocks")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    options = parser.parse_args(arguments)
    try:
        text = options.page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as work:
            new = renew_blocks(text, Evidence(options.page.parent, Path(work)), options.only)
    except MadbenchError as error:
        sys.exit(str(error))
    if not options.check:
        write_atomically(options.page, new.encode())
    elif new != text:
        sys.exit(f"{options.page}: not what the archives give; python studies/evidence.py {options.page}")


if __name__ == "__main__":
    main()
