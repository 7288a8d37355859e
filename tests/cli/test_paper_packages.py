"""Papers of installed packages: their sets and profiles have names, and are found without an import."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from installed import forget_installed
from madbench.analysis.claims import claims_by_paper, load_claims
from madbench.analysis.claims.thresholds import claim_threshold, published_gain
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import findings_table
from madbench.analysis.registration import register
from madbench.config import Override
from madbench.errors import ConfigError
from madbench.labels import available_sets, expand
from madbench.papers import load_paper
from madbench.papers.making import Request, measure_of
from madbench.plugins.paper_folders import paper_folders
from madbench.suites import find_suite
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD
from madbench.suites.published import paper_scores, profile_scores, published_scores
from small_profiles import profile_text


@pytest.fixture
def outside(tmp_path, monkeypatch, install_example):
    """A working folder, and an installed paper ``sets`` with a set, profiles and an item that uses them."""
    package = tmp_path / "package"
    folder = package / "madbench_sets"
    (folder / "variants").mkdir(parents=True)
    (folder / "profiles" / "mad").mkdir(parents=True)
    (folder / "variants" / "own-set.yaml").write_text("description: two\nlabels: [S, R-c]\n")
    (folder / "few.yaml").write_text("description: one\nlabels: [G-c]\n")
    (folder / "beside.yaml").write_text(profile_text())
    (folder / "profiles" / "mad" / "own-profile.yaml").write_text(profile_text())
    (folder / "paper.yaml").write_text(
        "title: t\nsource: s\nitems:\n"
        "  - {id: a, place: b, title: c, labels: ['@own-set', '@few.yaml'], tasks: [compression],"
        " profiles: {quick: beside.yaml, full: own-profile}}\n"
    )
    (folder / "__init__.py").write_text(
        "from pathlib import Path\nfrom madbench.papers import Paper\n"
        "PAPER = Paper.load(Path(__file__).with_name('paper.yaml'))\n"
    )
    (package / "pyproject.toml").write_text(
        "[project]\nname = 'madbench-sets'\nversion = '1'\n"
        "[project.entry-points.'madbench.papers']\nsets = 'madbench_sets:PAPER'\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return install_example(package) / "madbench_sets"


def test_a_paper_brings_sets_and_profiles_that_every_verb_finds_by_name(outside):
    assert expand(["@own-set"]) == ["S", "R-c"]
    assert "own-profile" in MAD.Profile.names() and MAD.Profile.load("own-profile").difficulty == "baseline"
    assert "own-profile" not in LANGUAGE.Profile.names()
    assert "madbench_sets" not in sys.modules  # they are found without an import of the package
    for size in ("quick", "full"):
        paper = load_paper("sets")
        planned = measure_of(paper.item("a")).plan(Request(paper, paper.item("a"), size))
        assert [row.label for row in planned.rows] == ["S", "R-c", "G-c"]
        assert MAD.Profile.load(planned.profile).difficulty == "baseline"


@pytest.mark.parametrize(
    ("base", "reason"),
    [("", "a subclass of madbench.papers.making.Measure, got Half"), ("(Measure)", "abstract method '?decide")],
)
def test_a_measure_without_the_base_class_or_a_required_method_is_refused(outside, base, reason):
    (outside / "half.py").write_text(
        f"from madbench.papers.making import Measure\nclass Half{base}:\n    def plan(self, request):\n        pass\n"
    )
    item = dataclasses.replace(load_paper("sets").item("a"), measure="madbench_sets.half:Half")
    with pytest.raises(ConfigError, match=f"a: measure madbench_sets.half:Half: .*{reason}"):
        measure_of(item)


def test_files_of_a_paper_are_found_in_its_folder_before_the_working_folder(outside):
    Path("few.yaml").write_text("description: another\nlabels: [S-p]\n")
    Path("beside.yaml").write_text(profile_text(learning_rates=[5e-3]))
    item = load_paper("sets").item("a")
    assert expand(item.labels) == ["S", "R-c", "G-c"]
    assert Path(item.profiles["quick"]) == outside / "beside.yaml"


def test_a_set_of_a_paper_whose_name_is_taken_is_refused(outside):
    (outside / "variants" / "table1.yaml").write_text("description: x\nlabels: [S]\n")
    with pytest.raises(ConfigError, match=r"table1.yaml has this name already; rename it"):
        load_paper("sets")
    assert len(expand(["@table1"])) == 33


def test_sets_and_profiles_of_shipped_papers_have_unique_names():
    for folder in paper_folders().values():
        for path in folder.glob("variants/*.yaml"):
            assert available_sets()[path.stem] == path
        for path in folder.glob("profiles/*/*.yaml"):
            assert find_suite(path.parent.name).Profile.files()[path.stem] == path
    assert {"hyper1", "principle6"} <= available_sets().keys() and "hyper1" in LANGUAGE.Profile.names()


TABLE = "label,score,profile,overrides\nS,40.5,,\nR-c,50.5,,\nG-c,9.5,own-profile,training.epochs=3\n"
PUBLISHED = "tables:\n  - {file: t.csv, title: Table 9, columns: {compression: score}, factors: {compression: 2}}\n"
CLAIM = "claims:\n  - {name: large, pairs: [[R-c, S]], reach: 0.5, quantities: [compression]}\n"


@pytest.fixture
def published(outside):
    """The same paper with published numbers, and a claim on a share of them."""
    (outside / "t.csv").write_text(TABLE)
    (outside / "published.yaml").write_text(PUBLISHED)
    (outside / "claims.yaml").write_text(CLAIM)
    forget_installed()
    return outside


def test_a_paper_brings_published_numbers_that_tables_and_its_claims_show(published):
    assert paper_scores("sets") == {"S": {"compression": 81.0}, "R-c": {"compression": 101.0}}
    assert profile_scores("own-profile", (Override.of("training.epochs", 3),)) == {"G-c": {"compression": 19.0}}
    assert published_scores()["S"]["compression"] == 35.19  # of the first paper that has it
    (claim,) = claims_by_paper()["sets"]
    assert published_gain(claim, "compression", [0]) == 20 and claim_threshold(claim, "compression", [0], {}) == 10
    (row,) = findings(None, claims=[claim])
    assert "Published: Table 9; *: against the claim." in findings_table([row]).caption
    assert load_claims(published / "claims.yaml") == load_claims("sets") == (claim,)
    assert "madbench_sets" not in sys.modules


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("published.yaml", "score", "scor", "t.csv has no column 'scor'"),
        ("published.yaml", "t.csv", "u.csv", "u.csv: cannot be read"),
        ("published.yaml", "{compression: score}", "{compresion: score}", "no column 'compresion'; did you mean"),
        ("t.csv", "40.5", "many", "expected numbers: could not convert string to float: 'many'"),
        ("claims.yaml", "[R-c, S]", "[R-c, S-p]", "reach is a share of published gains, and there are none of S-p"),
    ],
)
def test_published_numbers_that_are_wrong_stop_their_paper_alone(published, file, old, new, message):
    (published / file).write_text((published / file).read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_paper("sets")
    assert published_scores()["S"]["compression"] == 35.19 and "hypermlp" in claims_by_paper()


@pytest.mark.slow
def test_findings_warns_of_claims_that_cannot_be_read_and_shows_the_others(published, main):
    (published / "claims.yaml").write_text(CLAIM.replace("pairs", "pars"))
    shown = main("findings")
    assert shown.code == 0 and "Paper hypermlp" in shown.stdout and "Paper sets" not in shown.stdout
    assert "warning" in shown.stderr and "did you mean 'pairs'?" in " ".join(shown.stderr.split())


@pytest.mark.slow
def test_a_grid_is_registered_with_the_claims_of_the_paper_that_has_them(published, tmp_path):
    def registered(text: str) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(f"tasks: [compression]\nprofile: quick\n{text}")
        return register(path, tmp_path / "results")[0].claims_from

    assert registered("labels: [S, R-c]\n") == registered("labels: [S, R-c, G-c]\nclaims: [large]\n") == "sets"
    assert registered("labels: [R-cg-q-12o, R-cg-q, G-cg-q-12o, G-cg-q]\n") == "hypermlp"
    both = "labels: [S, R-c, R-cg-q-12o, R-cg-q, G-cg-q-12o, G-cg-q]\n"
    with pytest.raises(ConfigError, match=r"several papers have these claims; .* one of hypermlp, sets"):
        registered(both)
    assert registered(f"{both}claims_from: sets\n") == "sets"
    with pytest.raises(ConfigError, match=r"no paper has all of these claims; write claims_from: PAPER"):
        registered(f"{both}claims: [large, lag]\n")
    with pytest.raises(ConfigError, match="no claim 'larg'; did you mean 'large'"):
        registered(f"{both}claims: [larg]\n")
