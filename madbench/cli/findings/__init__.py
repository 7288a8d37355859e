"""``madbench findings``: claims against the stored runs, and the number of seeds that they need."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench.cli.findings.registrations import print_registered
from madbench.cli.shared import options
from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.config.options import EVERY_VERB, option, split_list
from madbench.errors import ConfigError, did_you_mean, no_effect
from madbench.experiment.commands import option_words, protocol_words
from madbench.suites import suites
from madbench.suites.addressing import own_overrides

if TYPE_CHECKING:
    from madbench.analysis.claims import Claim
    from madbench.analysis.findings import Finding
    from madbench.analysis.scores import Results
    from madbench.analysis.selection import Selection


def findings(
    words: StoredWordsArgument = None,
    claims: options.ClaimsOption = None,
    explain: Annotated[
        str | None,
        option("Everything about one claim, such as lag; all: every claim.", metavar="CLAIM", completes="CLAIM"),
    ] = None,
    registered: Annotated[
        Path | None, option("Exactly what was registered; anything else is marked exploratory.", metavar="FILE.json")
    ] = None,
    unscaled: Annotated[
        bool,
        option(
            "Do not scale thresholds that are shares of published accuracies: keep the paper's points.",
            "--unscaled",
            rare=EVERY_VERB,
        ),
    ] = False,
    power: Annotated[bool, option("Instead of verdicts, how many seeds each claim needs.", "--power")] = False,
    true_gain: Annotated[
        float | None,
        option(
            "With --power: the true gain at which power is stated, in the units of the column.",
            "--true-gain",
            rare=EVERY_VERB,
        ),
    ] = None,
    claim: Annotated[
        list[str] | None,
        option(
            "With --power: only these claims; all by default.",
            metavar="CLAIM,...",
            completes="CLAIM,...",
            rare=EVERY_VERB,
        ),
    ] = None,
    *,
    stored_options: StoredOptions,
    print_options: PrintOptions,
) -> None:
    """Judge the claims of papers, or your own, by the stored runs.

    Each claim has the pairs of labels that isolate it, the published gain, ours
    with an interval over seeds, and a verdict: supported, contradicted, not
    decided (tested, but p is above 0.05), not testable, or not enough data (not
    tested). Missing results are listed with their command.
    Without --claims each paper with claims on the stored labels has a section,
    and the correction for many tests is within the section. madbench new claim
    writes your own claims, about any label and column. Protocols are never
    mixed, as in madbench table. Thresholds that are shares of published
    accuracies are scaled to the profile, by the distance from a heuristic to a
    perfect score; --unscaled keeps the paper's points.

    --power: the number of seeds that find a gain beyond the threshold with a
    probability of 80%, for two true gains: the measured one and --true-gain. It
    uses the variance of the stored seeds, needs two seeds of every label, and
    divides the level by the number of tests. Default of --true-gain: no
    difference for a claim of no difference, twice the threshold for a claim of a
    gain, and the published gain if the threshold is 0.

    --registered FILE judges what madbench register wrote. Verdicts are
    provisional until every run has a result. The verdict says how many runs
    ended after the registration, and the caption names values that changed.

    [bold]Examples[/bold]

      madbench findings
      madbench findings --explain lag
      madbench findings --claims my_claims.yaml
      madbench findings --profile full --format markdown
      madbench findings -t language_model --format json
      madbench findings --registered lag.registered.json
      madbench findings --power --claim lag,mixing
      madbench findings --power -t selective_copying -f json
    """
    _check_power_options(power, claim, true_gain, {"--explain": explain, "--registered": registered})
    if power:
        print_power(claims, claim, stored_options.selection(words), print_options, true_gain)
        return
    if registered is not None:
        _check_registered_options(explain, unscaled, claims)
        print_registered(words, registered, stored_options, print_options)
        return
    _print_verdicts(claims, explain, not unscaled, stored_options.selection(words), print_options)


def _print_verdicts(
    source: str | None, explain: str | None, scales: bool, selection: Selection, print_options: PrintOptions
) -> None:
    """Print the verdict of each claim by the stored runs, or everything about the claim ``explain``.

    ``source`` is the file or the paper of the claims. By default, they are those on stored labels. If ``scales`` is
    False, thresholds are the paper's points.
    """
    from madbench.analysis.claims import load_claims
    from madbench.analysis.findings import findings_by_paper
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.samples import count_left_out

    requested_claims = None if source is None else {"": load_claims(source)}
    results = _stored_results(selection)
    by_paper = _claims_on_stored_labels(results) if requested_claims is None else requested_claims
    rows = findings_by_paper(
        results.scores if results else None,
        by_paper,
        _quantities(selection, by_paper),
        _command_options(selection, results),
        scales,
        results.chosen_on if results else {},
    )
    if explain is not None:
        rows = _rows_of_claim(rows, explain)
        if print_options.format == "terminal":
            sources = [source] if source else list(by_paper)
            _print_explanations(rows, sources if explain == "all" else [])
            return
    sentences = _sentences(results, by_paper, names_missing_papers=requested_claims is None)
    table = findings_table(rows, sentences, count_left_out(results.scores) if results else 0)
    print_text_table(table.of_origin(results.origin(names_profiles=True) if results else None), print_options)


def _check_power_options(
    power: bool, only: list[str] | None, true_gain: float | None, of_verdicts: Mapping[str, object]
) -> None:
    """Raise ``ConfigError`` for an option that has no effect, because ``--power`` is given or missing.

    ``only`` and ``true_gain`` are the values of ``--claim`` and ``--true-gain``, which need ``--power``.
    ``of_verdicts`` maps each option that has no effect with ``--power`` to its value, None if it is not given.
    """
    if only and not power:
        raise no_effect(f"--claim {','.join(only)}", "without --power; --explain NAME shows one claim")
    for flag, value in of_verdicts.items():
        if power and value is not None:
            raise no_effect(f"{flag} {value}", "with --power")
    if true_gain is not None and not power:
        raise no_effect(f"--true-gain {true_gain:g}", "without --power")


def _check_registered_options(explain: str | None, unscaled: bool, claims: str | None) -> None:
    """Raise ``ConfigError`` for options that have no effect with ``--registered``."""
    if explain is not None:
        raise no_effect(f"--explain {explain}", "with --registered")
    if unscaled:
        raise no_effect("--unscaled", "with --registered, which has its own thresholds")
    if claims is not None:
        raise no_effect(f"--claims {claims}", "with --registered, which has its own")


def _claims_on_stored_labels(results: Results | None) -> dict[str, tuple[Claim, ...]]:
    """The claims with at least one pair of stored labels, by paper. Warns about files of claims that cannot be read."""
    from madbench.analysis.claims import broken_claims, claims_on

    for problem in broken_claims().values():
        options.warn(problem)
    return claims_on(results.scores.label.unique() if results else ())


def _quantities(selection: Selection, by_paper: Mapping[str, Sequence[Claim]]) -> list[str] | None:
    """The columns on which the claims in ``by_paper`` are judged. None for all columns, if the user gives no tasks."""
    if selection.tasks is None:
        return None
    names = (name for claims in by_paper.values() for claim in claims for name in claim.quantities)
    return requested_columns(selection) + [name for name in names if _is_detail(selection, name)]


def _rows_of_claim(rows: Sequence[Finding], name: str) -> list[Finding]:
    """The rows of the claim ``name``, or all rows if ``name`` is ``all``.

    Raises ``ConfigError`` if there is no such claim.
    """
    from madbench.analysis.claims import CLAIMS_LISTED

    names = [*dict.fromkeys(row.claim.name for row in rows), "all"]
    if name not in names:
        raise ConfigError(f"--explain {name}: no such claim here{did_you_mean(name, names, CLAIMS_LISTED)}")
    return [row for row in rows if name in (row.claim.name, "all")]


def _sentences(results: Results | None, by_paper: Container[str], names_missing_papers: bool) -> list[str]:
    """Sentences for the caption: on the results, and on profiles that are not comparable with the paper.

    If ``names_missing_papers`` is True, one more sentence names the papers whose claims are about no stored pair of
    labels. These are the papers that are not in ``by_paper``.
    """
    from madbench.analysis.claims import claims_by_paper

    sentences = results.sentences() if results else []
    missing_papers = [name for name in claims_by_paper() if name not in by_paper] if names_missing_papers else []
    if missing_papers:
        sentences.append(f"No pair of labels is stored for the claims of {', '.join(missing_papers)} (--claims PAPER).")
    profiles = {row.protocol.suite.name: row.protocol.profile for row in results.rows} if results else {}
    return sentences + [
        *dict.fromkeys(
            f"The {profile.noun} is not comparable with the paper: verdicts hold for this {profile.noun} only."
            for profile in profiles.values()
            if not profile.comparable_with_paper
        )
    ]


def requested_columns(selection: Selection) -> list[str]:
    """The columns of the tasks that ``selection`` requests, and the further columns of their suites that claims use.

    A further column is, for example, the number of steps to a loss.
    """
    tasks_by_suite = [(suite, selection.tasks_of(suite)) for suite in suites().values()]
    names = [column.name for suite, tasks in tasks_by_suite if tasks for column in suite.columns(tasks)]
    return names + [name for suite, tasks in tasks_by_suite if tasks for name in suite.claimed_columns]


def _is_detail(selection: Selection, name: str) -> bool:
    """True if the column belongs to a suite with requested tasks, but is neither a task nor an average."""
    from madbench.analysis.quantities import is_average, suite_of_column

    suite = suite_of_column(name)
    if suite is None or not selection.tasks_of(suite):
        return False
    return name not in suite.tasks() and not is_average(name)


def _stored_results(selection: Selection) -> Results | None:
    """The stored results of the suites that ``selection`` shows. None if the default results folder does not exist yet.

    A suite without matching runs is left out, with a warning if the user needs to know. It is an error if the user
    chose a protocol, if the query for requested tasks is ambiguous, or if the results folder that the user named does
    not exist.
    """
    if selection.results == options.RESULTS and not options.RESULTS.exists() and selection.protocol is None:
        return None
    rows, missing = selection.available()
    for error in missing.values():
        is_ambiguous = selection.tasks is not None and isinstance(error, ConfigError)
        if is_ambiguous or selection.protocol is not None or not selection.results.exists():
            raise error
        if error in (selection.lacking(missing) or ([] if rows else missing.values())):
            selection.warn(str(error))
    return selection.results_of(rows)


def _command_options(selection: Selection, results: Results | None) -> dict[str, str]:
    """The options of the ``madbench run`` command that trains missing runs of a suite, by the name of the suite.

    If ``results`` has runs of a suite, its options select the protocol of these runs.
    """
    profile = selection.profile or selection.leading.default
    overrides = own_overrides(selection.overrides, selection.leading, selection.leading)
    selection.leading.Profile.load(profile, overrides)  # raises for an invalid profile, even if there are no runs
    options = option_words({"--profile": selection.profile, "--fidelity": selection.fidelity}, selection.budget)
    folder = option_words({"--results": str(selection.results)})
    words = {selection.leading.name: [*map(str, overrides), *options, *folder]}
    if results:
        for suite in results.suites_with_result:
            words[suite.name] = protocol_words(results.rows_of(suite)[0], selection.results)
    return {name: shlex.join(of_suite) for name, of_suite in words.items()}


def _print_explanations(rows: list[Finding], sources: list[str]) -> None:
    """Print everything about each claim in ``rows``. Then print which claims of ``sources`` cannot be tested.

    ``sources`` are names of papers or files of claims. A claim cannot be tested if no two labels isolate it.
    """
    from madbench.analysis.claims import load_claims_file
    from madbench.analysis.findings_table import explanation

    console = Console(highlight=False)
    for i, (claim, rows_of_claim) in enumerate(itertools.groupby(rows, key=lambda row: row.claim)):
        if i:
            console.print()
        console.print(f"{claim.name}: {claim.title}", style="bold", markup=False)
        table = Table.grid(Column(no_wrap=True, style="dim"), Column(overflow="fold"), padding=(0, 2))
        for heading, text in explanation(list(rows_of_claim)):
            table.add_row(Text(heading), Text(text))
        console.print(table)
    for source in sources:
        if text := load_claims_file(source).not_isolated:
            console.print(f"\nNot listed, as no two labels isolate them ({source}): {text}.", markup=False)


def print_power(
    source: str | None,
    only: list[str] | None,
    selection: Selection,
    print_options: PrintOptions,
    true_gain: float | None = None,
) -> None:
    """Print how many seeds each claim needs, computed from the variance of the stored seeds.

    ``source`` is the file or the paper of the claims. Default: the papers with claims on the stored labels. ``only``
    are names of claims. Default: all claims. ``true_gain`` is the gain that the seeds shall find, in the units of the
    column. Raises ``ConfigError`` for an unknown claim.
    """
    from madbench.analysis.claims import CLAIMS_LISTED, claims_by_paper, claims_on, load_claims
    from madbench.analysis.power import power_table

    requested_claims = split_list(only, "--claim", "claim") or []
    papers = {"": load_claims(source)} if source else claims_by_paper()
    claim_names = [claim.name for claims_of_paper in papers.values() for claim in claims_of_paper]
    for name in requested_claims:
        if name not in claim_names:
            raise ConfigError(f"--claim {name}: no such claim{did_you_mean(name, claim_names, CLAIMS_LISTED)}")
    stored_results = selection.select()
    if not source:
        papers = claims_on(stored_results.scores.label.unique())
    chosen_claims = {
        paper: [claim for claim in claims_of_paper if claim.name in (requested_claims or claim_names)]
        for paper, claims_of_paper in papers.items()
    }
    table = power_table(stored_results.scores, chosen_claims, stored_results.sentences(), true_gain)
    print_text_table(table, print_options)
