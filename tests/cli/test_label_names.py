"""A label is displayed as it was typed, by its preset name, or by the name that the user gave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import madbench
from madbench.bench.mixer import MIXERS
from madbench.bench.parts import BenchTable
from madbench.cli.explain import explain
from madbench.cli.verify import verify
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.labels import parse
from madbench.labels.names import DisplayNames, using_names
from madbench.mixers import Check
from madbench.mixers.cd.family import CoefficientFamily
from madbench.suites import suite_of
from madbench.training.checkpoints import save_weights
from sample_jobs import language_job

TASKS = ("-t", "compression,in_context_recall")
GDN, GLA = "cd:id-smhk1-bwn-cug", "cd:id-dg-cg"


@pytest.fixture
def stored_labels(fill):
    for label, accuracy in ((GDN, 0.5), (GLA, 0.4), ("S", 0.3)):
        for seed in range(3):
            fill(label, accuracy + seed / 100, [seed])


def first_words(output):
    return [line.split()[0] for line in output.split("\n\n")[0].splitlines()[2:]]


@pytest.mark.slow
def test_a_table_without_given_labels_uses_preset_names(main, stored_labels, tiny):
    using_names = main("table", "--profile", tiny, *TASKS)
    assert first_words(using_names.stdout) == ["S", "cd:gla-cg", "cd:gateddeltanet-cg"]


@pytest.mark.slow
def test_a_table_has_the_labels_as_they_were_typed(main, stored_labels, tiny):
    using_names = main("table", "cd:gdn-cg", GLA, "--profile", tiny, *TASKS)
    assert first_words(using_names.stdout) == ["cd:gdn-cg", GLA]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "html"])
def test_the_option_rename_names_rows_in_every_format(format, main, stored_labels, tiny):
    words = ("--rename", "cd:gdn-cg=Gated DeltaNet", "--rename", "S=Softmax", "--format", format)
    using_names = main("table", "--profile", tiny, *TASKS, *words)
    text = using_names.stdout.replace("~", " ")  # LaTeX does not break a name
    assert "Gated DeltaNet" in text and "Softmax" in text and "gateddeltanet" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "format, written",
    [
        ("terminal", r"$\foo$_a|b <i>x</i> [red]y[/red] *z* 模型"),
        ("markdown", r"\$\\foo\$\_a\|b \<i>x\</i> [red]y[/red] \*z\* 模型"),
        ("latex", r"\$\textbackslash{}foo\$\_a\textbar{}b~\textless{}i\textgreater{}x"),
        ("html", r"$\foo$_a|b &lt;i&gt;x&lt;/i&gt; [red]y[/red] *z* 模型"),
    ],
)
def test_a_name_is_text_in_a_table_of_every_format(format, written, main, stored_labels, tiny):
    name = r"$\foo$_a|b <i>x</i> [red]y[/red] *z* 模型"
    assert written in main("table", "--profile", tiny, *TASKS, "--rename", f"S={name}", "--format", format).stdout


@pytest.mark.slow
def test_json_and_csv_have_the_canonical_labels(main, stored_labels, tiny):
    for format in ("json", "csv"):
        using_names = main("table", "--profile", tiny, *TASKS, "--rename", "S=Softmax", "--format", format)
        assert GDN in using_names.stdout and "Softmax" not in using_names.stdout


@pytest.mark.slow
def test_a_comparison_has_the_names_in_its_rows_and_caption(main, stored_labels, tiny):
    using_names = main("compare", "S", "cd:gdn-cg", "--profile", tiny, *TASKS, "--rename", "S=Softmax attention")
    assert "cd:gdn-cg" in using_names.stdout and "Difference to Softmax attention" in " ".join(
        using_names.stdout.split()
    )
    assert GDN not in using_names.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_report_has_the_names_and_links_by_label(main, stored_labels, tiny, tmp_path):
    page = tmp_path / "page.html"
    main("report", "--profile", tiny, *TASKS, "--rename", "cd:gdn-cg=Gated DeltaNet", "--output", str(page))
    html = page.read_text(encoding="utf-8")
    assert re.search(r'<th scope="row"[^>]*>Gated DeltaNet</th>', html) and "cd:gla-cg</th>" in html
    assert f"{GDN}</th>" not in html and f'data-label="{GDN} Gated DeltaNet"' in html
    assert re.search(rf'"names": ?\{{[^}}]*"{GDN}": ?"Gated DeltaNet"', html)


@pytest.mark.slow
def test_figures_from_python_have_the_names(stored_labels, store, tiny):
    how = {"profile": tiny, "tasks": ["compression", "in_context_recall"], "results": store.root}
    figure = madbench.plot("scores", ["S", "cd:gdn-cg", "cd:gla-cg"], rename={"cd:gdn-cg": "Gated DeltaNet"}, **how)
    texts = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert texts[:3] == ["S", "Gated DeltaNet", "cd:gla-cg"]


@pytest.mark.slow
def test_frames_from_python_have_names_that_are_asked_for_and_else_canonical_labels(stored_labels, store, tiny):
    how = {"profile": tiny, "tasks": ["compression"], "results": store.root}
    assert set(madbench.table(["S", "cd:gdn-cg"], **how).label) == {"S", GDN}
    named = madbench.table(["S", "cd:gdn-cg"], rename={GDN: "Gated DeltaNet"}, **how)
    assert set(named.label) == {"S", "Gated DeltaNet"}
    compared = madbench.compare(["S", "cd:gdn-cg"], rename={"S": "Softmax"}, **how)
    assert set(compared.baseline) == {"Softmax"}


def test_explain_shows_the_long_form_of_a_preset_name(invoke):
    text = invoke(explain, "cd:gdn-cg").output
    assert text.splitlines()[0].strip() == f"cd:gdn-cg = {GDN}"
    assert json.loads(invoke(explain, "cd:gdn-cg", "-f", "json").output)[0]["label"] == GDN


def test_budget_and_verify_have_the_label_as_typed(invoke, monkeypatch):
    assert "cd:gdn-cg" in (text := invoke(explain, "--cost", "cd:gdn-cg", "S").output) and GDN not in text
    monkeypatch.setattr(CoefficientFamily, "checks", lambda self, label: [Check("one", "It is.", "here", lambda: 0)])
    assert invoke(verify, "cd:gla-cg").output.startswith("pass  cd:gla-cg")


def test_a_message_has_the_label_as_typed(main, fill, tiny):
    fill("S", 0.5)
    ended = main("table", "cd:gdn-cg", "--profile", tiny, *TASKS)
    assert ended.code == 2 and "cd:gdn-cg" in ended.stderr and GDN not in ended.stderr


def test_a_preset_name_and_its_long_form_parse_to_one_label():
    assert str(parse("cd:gla-cg")) == str(parse(GLA)) == GLA


def test_a_name_that_nothing_shows_has_a_warning(main, fill, tiny):
    fill("S", 0.5)
    words = ("table", "--profile", tiny, *TASKS, "--rename", "S=Softmax", "--rename", "cd:gdn-cg=Gated DeltaNet")
    ended = main(*words)
    nothing = "--rename cd:gateddeltanet-cg=Gated DeltaNet has no effect: the output does not show cd:gateddeltanet-cg"
    assert ended.code == 0 and "Softmax" in ended.stdout
    (warning,) = ended.stderr.splitlines()
    assert warning.startswith(f"warning: {nothing}, or shows it as a label")
    labels = [line.split("=")[0] for line in main(*words, "-f", "csv").stderr.splitlines()]
    assert labels == ["warning: --rename S", "warning: --rename cd:gateddeltanet-cg"]
    assert main(*words[:-2]).stderr == ""


@pytest.mark.parametrize("word", ["S", "S=", "S-x=y", "S=two\nlines", "S=\x1b[31mred", "S=\u2028", "S=\ud800"])
def test_a_wrong_value_of_rename_is_an_error(word, main, tiny):
    ended = main("table", "--profile", tiny, "--rename", word)
    assert ended.code == 2 and "Traceback" not in ended.stderr


def test_an_exported_file_is_called_by_the_label_that_was_typed(main, store):
    job = language_job(GDN)
    with store.lock(job) as work:
        (work / KEEP).mkdir()
        save_weights(work / KEEP / WEIGHTS, suite_of(job).Trial.build(job), job)
        store.finish(job, Record("finished"))
    for name, file in (("cd:gdn-cg", "cd-gdn-cg"), (GDN, GDN.replace(":", "-")), (job.id, "cd-gateddeltanet-cg")):
        ended = main("lm", "export", name)
        assert ended.code == 0 and ended.stdout.startswith(f"{file}-{job.id[:8]}.safetensors: "), ended
        assert Path(f"{file}-{job.id[:8]}.safetensors").is_file()
    assert not list(Path().glob("*:*"))


def test_a_benchmark_s_csv_has_the_labels_of_its_table():
    rows = [{"label": str(parse("cd:gdn")), "path": "step"}, {"label": "S", "path": "step"}]
    with using_names(DisplayNames().with_spelling(str(parse("cd:gdn")), "cd:gdn")):
        records = BenchTable(MIXERS, rows, "").json_rows()
    assert [(row["label"], row["canonical"]) for row in records] == [("cd:gdn", "cd:id-smhk1-bwn-u"), ("S", "S")]
