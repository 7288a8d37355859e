"""Sets of labels: braces, files and neighborhoods."""

from __future__ import annotations

import csv

import pytest

from madbench import config
from madbench.errors import ConfigError, LabelError
from madbench.labels import expand, family_of, parse
from madbench.mixers.srg.listing import all_labels
from srg_letters import END, FREE_FEATURES, features_after

BRACES = {
    "S": "S",
    "hyperglu": "G-cg-q-12o",
    "{S,R}-c": "S-c R-c",
    "S{,-p,-c}": "S S-p S-c",
    "{S,{R,G}-c}-q": "S-q R-c-q G-c-q",
    "{S,S}": "S",
    "R-{1,2}{,o}!": "R-1! R-1o! R-2! R-2o!",
    "~{S,S}": f"S R G D L {' '.join(f'S-{letter}' for letter in FREE_FEATURES)} S-q S-v",
}


@pytest.mark.parametrize("pattern", BRACES)
def test_brace_patterns_expand_to_labels(pattern):
    assert expand([pattern]) == BRACES[pattern].split()


def test_expand_keeps_the_order_and_removes_duplicates():
    assert expand(["R", "{S,R}", "S-c", "HyperMLP", "R-cg-q-12o"]) == ["R", "S", "S-c", "R-cg-q-12o"]


def test_expand_accepts_a_single_pattern():
    assert expand("{S,R}") == ["S", "R"]


def test_a_neighborhood_starts_with_its_label():
    assert expand(["~HyperGLU"]) == [
        "G-cg-q-12o",
        *map(str, family_of("HyperGLU").neighbors(parse("HyperGLU"))),
    ]


def test_one_pattern_expands_to_all_504_labels():
    costly = "{S,R,G}{{,-p,-c,-pc}{-1,-2,-12,-1o,-2o,-12o},-{g,pg,cg,pcg}{,-1,-2,-12,-1o,-2o,-12o}}!"
    matched = "{S,R,G}{,-p,-c,-g,-pc,-pg,-cg,-pcg}-{q,v}{,-1,-2,-12,-1o,-2o,-12o}"
    assert set(expand([costly, matched, "{S,R,G}{,-p,-c,-pc}"])) == set(all_labels())


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("S{-c", "set 'S{-c'\n      ^ no '}' closes this '{'"),
        ("S{-c,{-p}", "set 'S{-c,{-p}'\n      ^ no '}' closes this '{'"),
        ("S}", "set 'S}'\n      ^ no '{' before this '}'"),
        (
            "{S,R}-cx",
            (
                f"label 'S-cx'\n          ^ expected {features_after('c', '-', END)} after 'c'; did you mean 'S-c'?\n"
                "in the set '{S,R}-cx'"
            ),
        ),
        ("{a,b}" * 40, f"'{'{a,b}' * 12}...' stands for more than 10,000 labels; ask for fewer"),
    ],
)
def test_messages_on_wrong_patterns_point_at_the_fault(pattern, message):
    with pytest.raises(LabelError) as caught:
        expand(["S", pattern])
    assert str(caught.value) == message


def test_patterns_with_too_many_labels_are_an_error():
    for pattern in ("{S,R}" * 40, "{S,R}" * 5000, "S" * 10_000):
        with pytest.raises(LabelError):
            expand([pattern])


def test_table1_is_the_published_table_in_its_order():
    with (config.PAPERS / "hypermlp" / "table1.csv").open() as lines:
        published = [row["label"] for row in csv.DictReader(lines)]
    assert len(published) == 33
    assert expand(["@table1"]) == published


def test_a_set_of_the_current_folder_hides_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "variants" / "table1.yaml", "['S-c', '{S,R}']")
    write(tmp_path / "variants" / "mine.yaml", "['@table1', '~G']")
    assert expand(["@table1"]) == ["S-c", "S", "R"]
    assert expand(["@mine"])[:4] == ["S-c", "S", "R", "G"]


def test_paths_in_a_set_are_relative_to_its_folder(tmp_path):
    write(tmp_path / "sub" / "a.yaml", "['@b.yaml', 'R']")
    write(tmp_path / "sub" / "b.yaml", "['S']")
    assert expand([f"@{tmp_path}/sub/a.yaml"]) == ["S", "R"]


def test_a_set_that_contains_itself_is_an_error(tmp_path):
    write(tmp_path / "a.yaml", "['S', '@b.yaml']")
    write(tmp_path / "b.yaml", "['@a.yaml']")
    with pytest.raises(LabelError, match=r"a.yaml -> b.yaml -> a.yaml"):
        expand([f"@{tmp_path}/a.yaml"])


def test_a_bad_label_in_a_file_names_the_file_and_the_entry(tmp_path):
    write(tmp_path / "a.yaml", "['S', 'G-cx']")
    with pytest.raises(LabelError, match=r"in .*a\.yaml: labels\[1\]$"):
        expand([f"@{tmp_path}/a.yaml"])


def test_an_empty_set_is_an_error(tmp_path):
    write(tmp_path / "a.yaml", "[]")
    with pytest.raises(LabelError, match="labels is empty"):
        expand([f"@{tmp_path}/a.yaml"])


def test_unknown_keys_of_a_file_are_errors(tmp_path):
    (tmp_path / "a.yaml").write_text("description: d\nlabel: [S]\n")
    with pytest.raises(ConfigError, match="did you mean 'labels'"):
        expand([f"@{tmp_path}/a.yaml"])


@pytest.mark.parametrize("spec", ["@", "@tabel1", "@nowhere/x.yaml", "@\0.yaml", "@x\0"])
def test_unknown_sets_are_label_errors(spec):
    with pytest.raises(LabelError, match="no such (set|file)"):
        expand([spec])


def test_an_unknown_set_names_the_nearest():
    with pytest.raises(LabelError, match="did you mean 'table1'"):
        expand(["@tabel1"])


def test_expanding_a_value_that_is_not_text_is_a_label_error():
    with pytest.raises(LabelError):
        expand([None])


def write(path, labels):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"description: A set.\nlabels: {labels}\n")


def test_sets_of_sets_give_each_label_once(tmp_path):
    write(tmp_path / "0.yaml", "[S, R]")
    for i in range(1, 5):
        write(tmp_path / f"{i}.yaml", f"['@{i - 1}.yaml{{,}}', '@{i - 1}.yaml']")
    assert expand([f"@{tmp_path}/4.yaml"]) == ["S", "R"]
