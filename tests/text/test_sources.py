"""Files, folders and the standard library as sources of text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from madbench.errors import ConfigError
from madbench.text.sources import find_sources


def test_a_folder_gives_all_files_below_it_sorted_without_hidden_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b/z.txt", "b/a.jsonl", "a.txt", ".hidden", ".git/config", "b/.cache/x", "c/d/e.parquet"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("x")
    assert [source.name for source in find_sources(["data"])] == [
        "data/a.txt",
        "data/b/a.jsonl",
        "data/b/z.txt",
        "data/c/d/e.parquet",
    ]


def test_sources_keep_the_given_order(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    words = [str(tmp_path / "b"), str(tmp_path / "a")]
    assert [source.name for source in find_sources(words)] == words


def test_a_dangling_link_in_a_folder_is_an_error(tmp_path):
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"a.txt: cannot be read: no such file"):
        find_sources([str(tmp_path)])


@pytest.mark.slow
def test_a_file_named_twice_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").symlink_to("a.txt")
    for words in ([str(tmp_path)], [str(tmp_path / "a.txt")] * 2, ["stdlib", "stdlib"]):
        with pytest.raises(ConfigError, match="named twice"):
            find_sources(words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("corpu.txt", "source 'corpu.txt': no such file or folder; did you mean 'corpus.txt'?"),
        ("stdlb", "source 'stdlb': no such file or folder; did you mean 'stdlib'?"),
        (
            "nowhere/at/all",
            "source 'nowhere/at/all': no such file or folder; expected one of: a file, a folder, hf:NAME",
        ),
        ("x" * 300, "source 'xxx"),
        ("empty", "source 'empty': the folder holds no file"),
        ("hf:", "source 'hf:': expected a dataset, such as hf:"),
    ],
)
def test_an_unknown_source_is_an_error_with_a_suggestion(tmp_path, monkeypatch, word, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        find_sources([word])
    assert str(caught.value).startswith(message)


def test_a_source_that_is_no_file_is_refused_and_never_suggested(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=f"^source '{pipe}': not a regular file; .* copy its text into a file$"):
        find_sources([str(pipe)])
    pipe.unlink()
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match=f"^source '{link}': no such file or folder; expected one of: a file"):
        find_sources([str(link)])


def test_an_empty_list_of_sources_is_refused():
    with pytest.raises(ConfigError, match="no source of text; expected files, folders, hf:NAME or stdlib"):
        find_sources([])


def test_a_key_that_no_source_could_have_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="text key 'body' has no effect"):
        find_sources([str(tmp_path)], "body")


@pytest.mark.slow
def test_the_standard_library_is_megabytes_of_python_without_tests_and_installed_packages():
    sources = find_sources(["stdlib"])
    names = [source.name for source in sources]
    assert {"stdlib/os.py", "stdlib/asyncio/base_events.py"} <= set(names)
    assert names == sorted(names, key=lambda name: Path(name).parts)
    assert not {"test", "tests", "site-packages", "dist-packages"} & {
        part for name in names for part in Path(name).parts
    }
    assert 400 < len(sources) < 1500
    assert 8e6 < sum(source.size for source in sources) < 20e6
    text = next(only.documents() for only in sources if only.name == "stdlib/os.py")
    assert "".join(text) == Path(os.__file__).read_text(encoding="utf-8")


def test_a_file_of_the_standard_library_with_two_names_is_there_once(tmp_path, monkeypatch):
    """Such as ``_sysconfigdata`` in Debian's Python."""
    root = tmp_path / "python3.12"
    (root / "json").mkdir(parents=True)
    for name in ("_linked_to.py", "json/decoder.py", "os.py"):
        (root / name).write_text(name)
    (root / "_link.py").symlink_to("_linked_to.py")
    (root / "json" / "link.py").symlink_to("../os.py")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(root))
    sources = find_sources(["stdlib"])
    assert [source.name for source in sources] == ["stdlib/_link.py", "stdlib/json/decoder.py", "stdlib/json/link.py"]
    texts = ["".join("".join(source.documents())) for source in sources]
    assert texts == ["_linked_to.py", "json/decoder.py", "os.py"]
    with pytest.raises(ConfigError, match="named twice"):
        find_sources(["stdlib", str(root / "os.py")])


@pytest.mark.parametrize("where", ["empty", "python311.zip"])
def test_a_python_without_source_files_is_refused(tmp_path, monkeypatch, where):
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / where))
    with pytest.raises(ConfigError, match="this Python has no source files"):
        find_sources(["stdlib"])
