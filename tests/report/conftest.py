"""A small store with everything that a report shows, and its page, made once."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.jobs import Record
from madbench.report.page import ReportPage, report_page
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from small_profiles import counts, profile_text, with_setting

_SETTINGS = with_setting(["compression", "in_context_recall"], **counts(64, 32))
PROFILE = profile_text(
    learning_rates=[1e-3, 2e-3],
    beside={"language_model": "tiny"},
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 2},
    tasks=_SETTINGS | {"in_context_recall": _SETTINGS["in_context_recall"] | {"learning_rates": [1e-3]}},
)
"""Two learning rates on the first of two tasks."""
FIGURES = "madbench.report.page.figure_names"
LABELS = ("S", "S-c", "R-c")
TASKS = ("compression", "in_context_recall")
ERROR = "</script><script>document.title='gone'</script> & <b>out of memory</b>"
DETAILS = {
    "device": "a slide rule",
    "path": "dense",
    "versions": {"madbench": "0", "torch": "9.9"},
    "git": {"commit": "c0ffee", "dirty": True},
    "ranks": {"qk": 16, "vo": 16, "mix": 0},
    "mixer_parameters": 1000,
    "budget": 1024,
    "budget_ratio": 1000 / 1024,
}


class PageCell(NamedTuple):
    text: str
    attributes: dict[str, str | None]


class Parsed(HTMLParser):
    """A report page parsed without a browser: its tables, text, ids and data."""

    def __init__(self, html: bytes):
        super().__init__()
        self.html = html.decode()
        self.tables: dict[str, list[list[PageCell]]] = {}
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.data: dict[str, Any] = {}
        self._rows: list[list[PageCell]] | None = None
        self._in_data = self._in_script = False
        self.feed(self.html)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "table":
            self._rows = self.tables[given.get("id", "")] = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append(PageCell("", given))
        self._in_data = given.get("id") == "data"
        self._in_script = tag in ("script", "style")

    def handle_endtag(self, tag):
        if tag == "table":
            self._rows = None
        self._in_data = self._in_script = False

    def handle_data(self, text):
        if self._in_data:
            self.data = json.loads(text)
        elif not self._in_script:
            self.text += text
            if self._rows and self._rows[-1] and text.strip():
                cell = self._rows[-1][-1]
                self._rows[-1][-1] = cell._replace(text=cell.text + text.strip("\n"))

    def cell(self, table: str, row: str, heading: str) -> PageCell:
        """The cell of the row and the column with these headings."""
        headings, *rows = self.tables[f"{table}-table"]
        column = [cell.text for cell in headings].index(heading)
        return next(cells for cells in rows if cells[0].text == row)[column]

    def field(self, name: str, i: int) -> Any:
        """The field of the ``i``-th run."""
        return value_at(self.data["runs"].get(name, {"values": [None]}), i)


def value_at(column: Any, i: int) -> Any:
    """The ``i``-th value of a column of :mod:`madbench.report.runs`."""
    if isinstance(column, list):
        return column[i]
    return column["values"][column["index"][i] if "index" in column else 0]


@pytest.fixture(scope="session")
def profile(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("profiles") / "two_rates.yaml"
    path.write_text(PROFILE)
    return str(path)


def accuracy_of(job) -> float:
    """The accuracy of a job: 0.5 for S, 0.1 more with a convolution, 0.01 per seed, and less with the second rate."""
    return 0.5 + 0.1 * ("c" in job.label) + job.seed / 100 - 0.2 * (job.training.learning_rate > 1e-3)


@pytest.fixture(scope="session")
def fill(profile):
    """``fill(store)``: runs of three labels on two tasks; of R-c one failed, one diverged and one is missing."""

    def call(store: Store, labels=LABELS, seeds=(0, 1), **details) -> None:
        for job in MAD.jobs(labels, MAD.Profile.load(profile), tasks=TASKS, seeds=seeds):
            accuracy = accuracy_of(job)
            metrics = {"accuracy": accuracy, "selection_accuracy": accuracy, "ceiling": 1.0}
            columns = ("validation_loss", "validation_token_accuracy")
            curve = [
                {"epoch": i, "step": 4 * i, "train_loss": 3 / i} | dict(zip(columns, (3.1 / i, accuracy * i / 60)))
                for i in range(1, 61)
            ]
            record = Record("finished", metrics, curve, DETAILS | {"seconds": 1.5} | details)
            if job.label == "R-c" and job.task == "in_context_recall":
                record = Record("failed", {}, [], {}, ERROR) if job.seed else None
            elif job.label == "R-c" and job.seed and job.training.learning_rate > 1e-3:
                curve[-1]["train_loss"] = float("nan")
                record = Record("diverged", {}, curve, DETAILS | details, "loss was not finite in epoch 60")
            if record is not None:
                store.finish(job, record)

    return call


@pytest.fixture(scope="session")
def fill_language(language_run):
    def call(store: Store, labels=("S", "S-c"), seeds=(0, 1), **choices) -> None:
        for label in labels:
            for seed in seeds:
                run = language_run(label, [3.0, 2.5 - seed / 10 - 0.5 * ("c" in label)], seed=seed, **choices)
                store.finish(run.job, run.record)

    return call


@pytest.fixture(scope="session")
def selected(profile):
    """``selected(store, *labels)``: the results for a report."""

    def call(store: Store, *labels: str, tasks=(*TASKS, "language_model")) -> Results:
        name = profile if tasks is None or set(tasks) & set(TASKS) else None
        asked = None if tasks is None else [*tasks]
        return Selection([*labels], profile=name, tasks=asked, results=store.root).select()

    return call


@pytest.fixture(scope="session")
def store(tmp_path_factory, fill, fill_language) -> Store:
    made = Store.open(tmp_path_factory.mktemp("report") / "results")
    fill(made)
    fill_language(made)
    return made


@pytest.fixture(scope="session")
def page_file(store, selected) -> Path:
    """The report page with its figures, which take some seconds."""
    path = store.root / "report.html"
    path.write_bytes(report_page(selected(store)).render("madbench report", "today"))
    return path


@pytest.fixture(scope="session")
def page(store, selected) -> ReportPage:
    """The report page without its figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FIGURES, lambda chosen: [])
        return report_page(selected(store))


@pytest.fixture(scope="session")
def parsed(page) -> Parsed:
    return Parsed(page.render("madbench report", "today"))


@pytest.fixture(scope="session")
def parsed_of_three(tmp_path_factory, fill, fill_language, selected) -> Parsed:
    """The parsed page, without figures, of three seeds on the MAD tasks.

    The first seed chooses a rate for the others.
    """
    made = Store.open(tmp_path_factory.mktemp("of_three") / "results")
    fill(made, seeds=(0, 1, 2))
    fill_language(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FIGURES, lambda chosen: [])
        return Parsed(report_page(selected(made)).render("madbench report", "today"))


@pytest.fixture
def read_page(selected, monkeypatch):
    """``read_page(store, *labels)``: the parsed page of these labels, without figures."""
    monkeypatch.setattr(FIGURES, lambda chosen: [])

    def call(store: Store, *labels: str, **choices) -> Parsed:
        page = report_page(selected(store, *labels, **choices), labels)
        return Parsed(page.render("madbench report", "today"))

    return call
