"""Runs written by other programs: right checksums with arbitrary content."""

from __future__ import annotations

import copy
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.errors import ConfigError
from madbench.jobs import Job, Record, Status
from madbench.store.format import DamagedRunError, Measurement, measurement_name, read_job, read_measurements, read_run
from madbench.store.runs import Store
from odd_runs import DEEP, FIELDS, write_run
from sample_jobs import language_job
from stored_samples import make_job


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value inside ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def with_replaced_value(value: Any, path: tuple, new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = new
    return value


others = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**320), 10**320),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["inf", "../x", "/x", "\x1b[2J", "finished", 10**400, "9" * 5000]),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)),
)


def assert_right_types(record: Record, files: dict[str, str]) -> None:
    assert record.status in get_args(Status) and type(record.error) is str
    for numbers in (record.metrics, *record.curve):
        assert all(type(name) is str and type(float(value)) is float for name, value in numbers.items())
    for name in ("corpus", "evaluation", "git", "versions"):
        assert isinstance(record.details.get(name) or {}, dict)
    float(record.details.get("seconds") or 0)
    json.dumps(record.details, ensure_ascii=False).encode()
    assert all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in files)


@pytest.mark.slow
@settings(max_examples=300)
@given(path=st.sampled_from(places(FIELDS)[1:]), new=others)
def test_a_changed_record_with_a_right_checksum_is_damaged_or_of_right_types(path, new):
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder), with_replaced_value(FIELDS, path, new))
        try:
            _, record, files = read_run(run)
        except DamagedRunError as error:
            assert run.name in str(error) and len(str(error)) < 1000
        else:
            assert_right_types(record, files)


ODD_FIELDS = {
    "details null": {"details": None},
    "details a list": {"details": []},
    "corpus a number": {"details": {"corpus": 3}},
    "places a number": {"details": {"places": 3}},
    "a place a number": {"details": {"places": [3]}},
    "folder a list": {"details": {"corpus": {"folder": []}}},
    "seconds text": {"details": {"seconds": "x"}},
    "a huge metric": {"metrics": {"accuracy": 10**400}},
    "an infinite metric": {"metrics": {"accuracy": float("inf")}},
    "a true metric": {"metrics": {"accuracy": True}},
    "a metric of text": {"metrics": {"accuracy": "1"}},
    "files a list": {"files": []},
    "a file above": {"files": {"../x": "0" * 64}},
    "a file of the root": {"files": {"/etc/passwd": "0" * 64}},
    "no name": {"files": {"": "0" * 64}},
    "no digest": {"files": {"x": "0"}},
    "an error of none": {"error": None},
    "another key": {"more": 1},
    "a surrogate": {"error": "\ud800"},
    "an infinite budget": {"details": {"budget_ratio": "inf"}},
    "a status in a list": {"status": ["finished"]},
    "deep details": {"details": {"a": json.loads("[" * 70 + "]" * 70)}},
}


@pytest.mark.parametrize("change", ODD_FIELDS.values(), ids=ODD_FIELDS.keys())
def test_a_record_of_wrong_types_is_damaged(tmp_path, change):
    write_run(tmp_path)
    assert Store(tmp_path).read(make_job().id).record.metrics["accuracy"] == 0.5
    folder = write_run(tmp_path, FIELDS | change)
    with pytest.raises(DamagedRunError, match=folder.name):
        read_run(folder)


@pytest.mark.parametrize(
    "curve",
    [b"", b"a,b\n1\n", b"a\n1e\n", b"a\n" + b"9" * 400 + b"\n", b"a,a\n1,2\n", b"\xff\n", b"a\n" + b"x" * 200_000],
    ids=["empty", "short row", "no number", "huge number", "one name twice", "no text", "long cell"],
)
def test_a_malformed_curve_is_damage_also_where_curves_are_not_read(tmp_path, curve):
    folder = write_run(tmp_path, curve=curve)
    for with_curve in (True, False):
        with pytest.raises(DamagedRunError, match=folder.name):
            read_run(folder, with_curve)


@pytest.mark.parametrize("count", ["step", "epoch", "tokens", "evaluation"])
@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1.5", "1e300", "9" * 309])
def test_a_run_with_a_count_that_is_not_whole_is_damaged(tmp_path, count, number):
    assert read_run(write_run(tmp_path, curve=f"{count},a\n3.0,1e308\n".encode()))[1].curve[0][count] == 3
    with pytest.raises(DamagedRunError, match="curve.csv"):
        read_run(write_run(tmp_path, curve=f"a,{count}\n1,3\n1,{number}\n".encode()))


@pytest.mark.parametrize("curve", [b"step\n10\n", b"tokens\n640\n", b"step,tokens\n10,640\n20,\n"])
def test_a_curve_of_a_language_model_has_steps_and_tokens_in_every_row(tmp_path, curve):
    job = language_job("S")
    read_run(write_run(tmp_path, curve=b"step,tokens\n10,640\n", job=job))
    with pytest.raises(DamagedRunError, match="a row has no"):
        read_run(write_run(tmp_path, curve=curve, job=job))


def test_integers_that_no_array_holds_are_floats(tmp_path):
    details = FIELDS["details"] | {"seconds": 10**308}
    change = {"metrics": {"accuracy": -(10**308)}, "details": details}
    record = read_run(write_run(tmp_path, FIELDS | change, b"a\n1" + b"0" * 308 + b"\n"))[1]
    for number in (record.metrics["accuracy"], record.details["seconds"], record.curve[0]["a"]):
        assert type(number) is float and abs(number) == 1e308


@pytest.mark.parametrize("name", ["record.json", "job.json"])
@pytest.mark.parametrize("text", [DEEP, f'{{"a": {DEEP}}}', '{"a": ' + "9" * 5000 + "}"], ids=["list", "in key", "int"])
def test_deeply_nested_json_and_huge_integers_are_damage(tmp_path, name, text):
    folder = write_run(tmp_path)
    (folder / name).write_text(text)
    with pytest.raises(DamagedRunError, match=folder.name):
        read_run(folder)


@pytest.mark.parametrize("name", ["record.json", "job.json", "curve.csv"])
def test_a_pipe_or_a_device_in_a_run_is_damage(tmp_path, name):
    file = write_run(tmp_path) / name
    for place in (lambda: os.mkfifo(file), lambda: file.symlink_to("/dev/zero")):
        file.unlink()
        place()
        with pytest.raises(DamagedRunError, match=f"{name}: not a regular file"):
            read_run(file.parent)


def test_brackets_in_text_do_not_count_as_nesting(tmp_path):
    folder = write_run(tmp_path, FIELDS | {"error": "[" * 1000})
    assert read_run(folder)[1].error == "[" * 1000


MEASURED = {"name": "evaluation", "values": {"loss": 1.5}, "details": {}, "settings": {"seq_len": 8}}
ODD_MEASUREMENTS = [
    {"values": None},
    {"values": []},
    {"values": {"loss": 10**400}},
    {"values": {"loss": "x"}},
    {"details": None},
    {"settings": 3},
    {"name": ["x"]},
    {"more": 1},
]


@pytest.mark.parametrize("change", [*ODD_MEASUREMENTS, "values", "name"])
def test_a_measurement_of_wrong_types_is_damaged(tmp_path, change):
    folder = write_run(tmp_path)
    (folder / "measurements").mkdir()
    fields = {"run": folder.name, **MEASURED}
    fields = fields | change if isinstance(change, dict) else {k: v for k, v in fields.items() if k != change}
    content = json.dumps(fields).encode()
    path = folder / "measurements" / measurement_name(1, content)
    path.write_bytes(content)
    with pytest.raises(DamagedRunError, match=path.name):
        read_measurements(folder)
    store = Store(tmp_path)
    assert store.all_measurements([folder.name]) == {} and path.name in store.problems[0]


def test_details_that_json_cannot_hold_are_written_as_text_or_refused(tmp_path):
    nested: list[Any] = []
    for _ in range(100):
        nested = [nested]
    store = Store.open(tmp_path)
    details = {"huge": 10**5000, "\ud800": "\udc80", "nested": nested}
    store.finish(make_job(), Record("finished", {}, [], details, "no such file: '\udcff'"))
    record = store.read(make_job().id).record
    assert record.details["huge"].startswith("0x") and record.details["\\ud800"] == "\\udc80"
    assert record.error == "no such file: '\\udcff'"
    with pytest.raises(TypeError):
        store.finish(make_job(1), Record("finished", {"x": 10**400}))
    store.measure(make_job().id, "x", {"y": 1}, {"nested": nested, "name": "\ud800"})
    assert store.measurements(make_job().id) == [
        Measurement("x", {"y": 1}, store.measurements(make_job().id)[0].details, {})
    ]


@pytest.mark.parametrize("change", [{"seed": -1}, {"seed": 2**70}, {"label": "S\x1b[2J"}])
def test_a_seed_or_label_that_nothing_could_print_is_damage(tmp_path, change, monkeypatch):
    job = Job(**{**vars(make_job()), **change})
    with pytest.raises(DamagedRunError):
        read_run(write_run(tmp_path, job=job))


@pytest.mark.parametrize("schema", [[], "4", 4.5, {}])
def test_a_run_with_a_format_that_is_not_a_number_is_damaged(tmp_path, schema):
    folder = write_run(tmp_path)
    job_file = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(job_file | {"schema": schema}))
    store = Store(tmp_path)
    assert list(store.runs()) == [] and folder.name in store.problems[0]


def test_read_job_accepts_only_the_fields_of_a_job():
    fields = make_job().to_dict()
    assert read_job(fields, "config.json") == make_job()
    deep = json.loads("[" * 100 + "]" * 100)
    for odd in (None, [], {}, fields | {"setting": deep}, fields | {"model": []}, fields | {"suite": "x" * 10**6}):
        with pytest.raises(ConfigError, match="config.json: ") as error:
            read_job(odd, "config.json")
        assert len(str(error.value)) < 1000


def test_details_may_be_nan_or_lists(tmp_path):
    store = Store.open(tmp_path)
    details = {"tokens_per_second": float("nan"), "git": None, "ranks": [{"qk": 8}, {"qk": 4}], "seconds": 1}
    store.finish(make_job(), Record("finished", {}, [], details))
    read = store.read(make_job().id).record.details
    assert math.isnan(read.pop("tokens_per_second")) and details.pop("tokens_per_second")
    assert read == details


def test_control_characters_in_stored_text_are_replaced(tmp_path):
    evil, shown = "\x1b[2Ja\u202eb\x9b\nc", "?[2Ja?b?\nc"
    details = FIELDS["details"] | {"device": evil, "git": {evil: [evil]}}
    folder = write_run(tmp_path, FIELDS | {"details": details, "error": evil, "metrics": {evil: 1}}, b"a\x1bb\n1\n")
    job, record, _ = read_run(folder)
    assert (record.details["device"], record.details["git"]) == (shown, {shown: [shown]})
    assert (record.error, record.metrics, record.curve) == (shown, {shown: 1}, [{"a?b": 1}])
    store = Store(tmp_path)
    for _ in range(2):  # the second time from the index
        assert store.records([job.id])[job.id].details == record.details
    store.measure(job.id, evil, {evil: 1}, {"x": evil}, {"y": evil})
    assert store.measurements(job.id) == [Measurement(shown, {shown: 1}, {"x": shown}, {"y": shown})]


def test_long_text_in_details_is_cut(tmp_path):
    folder = write_run(tmp_path, FIELDS | {"details": FIELDS["details"] | {"device": "x" * 300_000}})
    assert len(read_run(folder)[1].details["device"]) == 4000


@pytest.mark.parametrize("change", [{"task": "\x1b[2J"}, {"setting": {"\u202e": 1}}, {"mixer": {"x": ["\x9b"]}}])
def test_a_job_with_control_characters_is_damaged(change):
    with pytest.raises(ConfigError, match="cannot be printed"):
        read_job(make_job().to_dict() | change, "job.json")
