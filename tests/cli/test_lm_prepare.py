"""``madbench lm prepare``: a corpus from files and folders, its progress, and resumption after a stop."""

from __future__ import annotations

import json
import random

import pytest

from madbench.cli.lm import prepare
from madbench.text.corpus import open_corpus


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with texts in ``poems``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poems").mkdir()
    rng = random.Random(0)
    for name in "ab":
        (tmp_path / "poems" / f"{name}.txt").write_text("".join(rng.choices("abc \n", k=1000)))
    return tmp_path


def test_a_folder_becomes_a_corpus_with_a_table_and_the_next_command(folder, invoke):
    result = invoke(prepare.prepare, "poems", columns=200)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["split", "documents", "tokens", "bytes", "bytes", "per", "token"]
    assert lines[2].split() == ["train", "2", "1,982", "1,980", "1.00"]
    assert lines[3].split() == ["val", "2", "22", "20", "0.91"]
    assert "madbench lm G-cg-q-12o --corpus results/corpora/poems-bytes" in result.stderr
    assert open_corpus(folder / "results" / "corpora" / "poems-bytes").name == "poems-bytes"
    again = invoke(prepare.prepare, "poems", columns=200)
    assert again.stdout == result.stdout
    assert "already prepared from the same sources" in again.stderr
    assert "already prepared" not in result.stderr


def test_prepare_in_json_prints_the_corpus_description_and_its_folder(folder, invoke):
    content = json.loads(invoke(prepare.prepare, "poems", "-f", "json", "--output", "here", "--name", "verse").stdout)
    assert content == {"folder": "here", **open_corpus(folder / "here").description()}
    assert content["name"] == "verse"
    assert content["splits"]["val"]["tokens"] == 22


@pytest.mark.parametrize(
    ("words", "tokenizer", "name"),
    [
        (["poems"], "bytes", "poems-bytes"),
        (["poems/a.txt"], "gpt2", "a-gpt2"),
        (["poems/a.txt", "poems/b.txt"], "bpe:4096", "poems-bpe4096"),
        (["shard.0.jsonl.zst"], "some/tokenizer.json", "shard-tokenizer"),
        (["hf:karpathy/tiny:plain"], "bytes", "tiny-plain-bytes"),
    ],
)
def test_the_default_name_is_the_source_s_and_the_tokenizer_s(folder, words, tokenizer, name):
    assert prepare.default_name(words, tokenizer) == name


def test_errors_of_prepare_have_advice(folder, refuse):
    assert "--name" in refuse(prepare.prepare, "poems", "poems/a.txt")
    assert "did you mean 'poems'" in refuse(prepare.prepare, "poem")
    for name in ("--output", "--out"):
        assert "--results other has no effect with --output" in refuse(
            prepare.prepare, "poems", "--results", "other", name, "x"
        )
    assert "did you mean 'gpt2'" in refuse(prepare.prepare, "poems", "--tokenizer", "gpt-2")
    assert "no effect" in refuse(prepare.prepare, "poems", "--text-key", "article")
    assert not (folder / "results").exists()


def test_prepare_prints_progress_lines_without_a_terminal(folder, invoke, monkeypatch):
    monkeypatch.setattr(prepare, "LINE_SECONDS", 0.0)
    lines = invoke(prepare.prepare, "poems", columns=200).stderr.splitlines()
    assert any(line.startswith("tokenizing  2.0/2.0 kB ") and "2.0 k tokens" in line for line in lines), lines


def test_prepare_suggests_a_command_for_its_results_folder(folder, invoke):
    printed = invoke(prepare.prepare, "poems/a.txt", "--name", "a", "--results", "other", columns=200)
    command = "train on it: madbench lm G-cg-q-12o --corpus other/corpora/a --results other"
    assert command in printed.stdout + printed.stderr


def test_a_stopped_command_resumes(folder, invoke, monkeypatch):
    def stop(screen, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare.PrepareScreen, "update", stop)
        stopped = invoke(prepare.prepare, "poems")
    assert stopped.exit_code != 0
    assert "run the same command to resume" in stopped.stderr
    assert invoke(prepare.prepare, "poems").exit_code == 0


def test_force_does_not_reach_a_folder_outside_the_corpora(folder, refuse):
    (folder / "poems" / "train.bin").write_bytes(b"mine")
    assert "name '../../poems'" in refuse(prepare.prepare, "poems/a.txt", "--name", "../../poems", "--force")
    assert (folder / "poems" / "train.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("limit", ["document", "total"])
def test_limits_are_options_in_megabytes(folder, refuse, limit):
    assert "0.0009 MB" in refuse(prepare.prepare, "poems/a.txt", f"--max-{limit}", "0.0009")


def test_bad_rows_say_how_to_skip_them_and_are_counted(folder, invoke, refuse):
    rows = [json.dumps({"text": None if i % 4 == 3 else f"row {i} of many"}) for i in range(40)]
    (folder / "rows.ndjson").write_text("\n".join(rows))
    assert "rows.ndjson:4: key 'text': expected text, got nothing; --skip-bad" in refuse(prepare.prepare, "rows.ndjson")
    result = invoke(prepare.prepare, "rows.ndjson", "--skip-bad", "--validation", "0.2", columns=200)
    assert result.exit_code == 0 and "left out 10 rows without a text, 10 of them of rows.ndjson" in result.stderr
    again = invoke(prepare.prepare, "rows.ndjson", "--skip-bad", "--validation", "0.2", "-f", "json")
    assert json.loads(again.stdout)["sources"]["skipped"] == 10
    assert "no effect" in refuse(prepare.prepare, "poems", "--skip-bad")


def test_a_table_among_the_texts_is_refused_before_anything_is_written(folder, refuse):
    (folder / "poems" / "c.csv").write_text("title,text\na,b\n")
    assert "poems/c.csv: a table" in refuse(prepare.prepare, "poems")
    assert not (folder / "results").exists()
