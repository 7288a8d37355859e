"""Datasets of the Hugging Face hub as sources of text."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from madbench.errors import MissingExtraError
from madbench.text.sources import find_sources
from source_samples import only_source, reading_error


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the library ``datasets`` with one dataset, ``tiny``, with the config ``small``."""
    asked = []
    rows = [{"text": "a"}, {"text": ""}, {"text": "é"}]

    def load_dataset_builder(name, config):
        asked.append((name, config))
        if name != "tiny":
            raise FileNotFoundError(f"Dataset {name!r} doesn't exist on the Hub\nor cannot be accessed")
        splits = {"train": SimpleNamespace(num_bytes=3)}
        return SimpleNamespace(
            hash="cafe", info=SimpleNamespace(splits=splits), as_streaming_dataset=lambda split: rows
        )

    fake = SimpleNamespace(load_dataset_builder=load_dataset_builder, asked=asked, rows=rows)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return fake


def test_a_dataset_of_the_hub_is_streamed_and_its_revision_is_its_hash(hub):
    source = only_source("hf:tiny:small")
    assert list(source.documents()) == list(source.documents()) == ["a", "é"]
    assert (source.name, source.size, source.position, source.sha256) == ("hf:tiny:small", 3, 3, "cafe")
    assert hub.asked == [("tiny", "small")]


def test_a_dataset_without_config_takes_the_usual_one(hub):
    only_source("hf:tiny")
    assert hub.asked == [("tiny", None)]


def test_rows_without_a_text_can_be_skipped(hub):
    hub.rows[1:1] = [{"text": None}, {}]
    (source,) = find_sources(["hf:tiny"], skip_bad=True)
    assert list(source.documents()) == ["a", "é"] and source.skipped == 2


def test_errors_of_the_hub_are_messages_of_one_line(hub):
    assert reading_error("hf:huge").endswith("datasets cannot read it: Dataset 'huge' doesn't exist on the Hub")
    assert reading_error("hf:tiny", "txt").endswith("no column 'txt' (choose it with --text-key); did you mean 'text'?")
    hub.rows.append({"text": None})
    assert "expected text, got" in reading_error("hf:tiny")


@pytest.mark.parametrize(
    ("module", "name", "extra"), [("datasets", "hf:tiny", "hf"), ("pyarrow", "a.jsonl.zst", "text")]
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, module, name, extra):
    (tmp_path / "a.jsonl.zst").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install -e '\.\[{extra}\]'"):
        list(only_source(name).documents())


@pytest.mark.slow
def test_a_folder_is_read_through_the_real_datasets_library(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "a"}\n{"text": "é"}\n', encoding="utf-8")
    source = only_source(f"hf:{tmp_path / 'data'}")
    assert list(source.documents()) == ["a", "é"]
    assert source.sha256
