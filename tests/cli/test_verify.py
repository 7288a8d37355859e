"""``madbench verify``: checks of labels, failures first, and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import madbench
from madbench.cli.verify import verify
from madbench.errors import LabelError
from madbench.mixers import Check
from madbench.mixers.checks import general_checks
from madbench.mixers.srg.family import SrgFamily


def broken(self, label):
    yield Check("half", "A half is small.", "arithmetic", lambda: 0.5, 1e-9)
    yield Check("apart", "A half and none differ.", "arithmetic", lambda: 0.5, 1e-3, is_difference=True)
    yield Check("none", "There is one.", "nowhere", None, reason="there is none")
    yield Check("crash", "It can be computed.", "nowhere", lambda: 1 / 0)
    yield Check("nan", "It is a number.", "nowhere", lambda: float("nan"))
    raise RuntimeError("no more checks")


@pytest.mark.slow
@pytest.mark.parametrize("label, columns", [("G-cg-q-12o", 80), ("R-1!", 120)])
def test_verify_fits_all_checks_into_the_width(invoke, label, columns):
    result = invoke(verify, label, "--all", columns=columns)
    assert result.exit_code == 0 and result.output.startswith(f"pass  {label}")
    assert max(map(len, result.output.splitlines())) <= columns
    for name in ("causality", "parameters", "steps", "path chunked"):
        assert name in result.output


def test_verify_refuses_an_override(refuse):
    assert "training.epochs=4 has no effect: verify takes labels" in refuse(verify, "S-p", "training.epochs=4")


def test_checks_that_fail_come_first_and_end_in_exit_code_1(invoke, monkeypatch):
    monkeypatch.setattr(SrgFamily, "checks", broken)
    result = invoke(verify, "S", "--all")
    assert result.exit_code == 1 and result.output.startswith("fail  S  4 fail, 1 pass, 1 not applicable")
    for text in ("ZeroDivisionError", "the residual is nan", "RuntimeError: no more checks", "there is none"):
        assert text in result.output
    assert "Traceback" not in result.output
    assert result.output.index("ZeroDivisionError") < result.output.index("apart")
    rows = json.loads(invoke(verify, "S", "-f", "json").output)
    verdicts = ["fail", "pass", "not applicable", "fail", "fail", "fail"]
    assert [row["verdict"] for row in rows] == verdicts and rows[0]["residual"] == 0.5
    assert list(madbench.verify("S").verdict) == verdicts


def test_verify_prints_one_line_per_group_and_every_failed_check(invoke, monkeypatch):
    def checks(self, label):
        yield Check("parameters", "They match.", "the budget", lambda: 0.0)
        yield Check("steps", "Steps agree.", "decoding", lambda: 2e-10, 1e-9)
        yield Check("prefill", "A prompt agrees.", "decoding", lambda: 1e-12, 1e-9)
        yield from broken(self, label)

    monkeypatch.setattr(SrgFamily, "checks", checks)
    text = invoke(verify, "S").output
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "fail S 4 fail, 4 pass, 1 not applicable" and max(map(len, text.splitlines())) <= 80
    assert lines[1] == "checks pass fail n/a worst residual bound in"
    assert lines[2:4] == ["build and run 0 1 0", "parameters, state 1 0 0 0 <= 0 parameters"]
    assert lines[4] == "decoding 2 0 0 2.0e-10 <= 1e-09 steps"
    assert "equations, theorems 1 3 1 5.0e-01 <= 1e-09 half" in lines
    assert "ZeroDivisionError" in text and "Steps agree" not in text and "there is none" not in text
    assert lines[-1].startswith("--all lists every check")
    assert "Steps agree" in invoke(verify, "S", "--all").output


def test_a_module_of_a_wrong_shape_fails_the_check_of_its_shape(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = "from torch import nn\nclass Wide(nn.Module):\n"
    body = "    def __init__(self, d_model):\n        super().__init__()\n"
    body += (
        "        self.map = nn.Linear(d_model, d_model + 1)\n    def forward(self, x):\n        return self.map(x)\n"
    )
    (tmp_path / "wide_mixer.py").write_text(head + body)
    rows = json.loads(invoke(verify, "my:wide_mixer.Wide", "-f", "json").output)
    assert [(row["check"], row["verdict"]) for row in rows] == [("mixer", "fail")]
    assert "to the same shape" in rows[0]["statement"] and "17)" in rows[0]["reason"]


@pytest.mark.slow
def test_the_page_on_matching_shows_a_module_that_passes(invoke, tmp_path, monkeypatch):
    """The module has a required argument that only its ``fit`` chooses."""
    page = (Path(__file__).parents[2] / "docs" / "pages" / "matching.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fitted_of_the_page.py").write_text(code)
    result = invoke(verify, "my:fitted_of_the_page.Fitted")
    assert result.exit_code == 0 and result.output.startswith("pass  my:fitted_of_the_page.Fitted"), result.output


@pytest.mark.slow
def test_verify_of_several_labels_details_only_failed_checks(invoke, monkeypatch):
    whole = invoke(verify, "S", "R", "--all").output
    assert whole.count("causality") == 2 and "causality" not in invoke(verify, "S", "R").output

    def only_r(self, label):
        return broken(self, label) if str(label) == "R" else general_checks(self, label)

    monkeypatch.setattr(SrgFamily, "checks", only_r)
    result = invoke(verify, "{S,R}")
    assert result.output.startswith("fail  R") and "2 labels, 1 with a failed check" in result.output
    assert result.exit_code == 1 and "ZeroDivisionError" in result.output and "causality" not in result.output


@pytest.mark.slow
def test_an_installed_family_is_verified(invoke, install_example):
    install_example("plugin")
    result = invoke(verify, "lin:{elu,relu,id}{,-g}")
    assert result.exit_code == 0 and "6 labels, none with a failed check" in result.output


@pytest.mark.parametrize("label", ["my:gone.Mixer", "my:madbench.Gone"])
def test_a_missing_module_is_a_label_error_and_not_a_failed_check(refuse, label, monkeypatch):
    monkeypatch.setattr(SrgFamily, "checks", lambda self, label: pytest.fail("checked before the error was found"))
    assert "gone" in refuse(verify, "S", label).lower()
    assert refuse(verify, label).startswith(f"{label}: " if "gone" in label else "my:madbench.Gone: madbench has no")
    with pytest.raises(LabelError):
        madbench.verify(label)
