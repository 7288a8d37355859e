"""``madbench validate --machine``: kernels compared with a reference, packages, and reasons of failures."""

from __future__ import annotations

import json
import os
import re
from importlib import metadata

import pytest
import torch

from madbench.cli.validate import machine as module
from madbench.cli.validate import validate
from madbench.errors import TrainingError


@pytest.fixture
def few_paths(monkeypatch):
    """Check only one label of path sdpa and one of path fused, for tests that are not about paths."""
    monkeypatch.setattr(module, "LABELS_OF_CHECK", ("S-pc", "R"))


@pytest.fixture
def examine(invoke, tmp_path):
    """The JSON of ``validate --machine``, and the error it ends in."""

    def examine(*words):
        result = invoke(validate, "--machine", "--results", tmp_path / "results", "-f", "json", *words)
        return json.loads(result.stdout, parse_constant=pytest.fail), str(result.exception or "")

    return examine


DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
"""The devices on which every path is checked."""


@pytest.mark.slow
def test_a_machine_that_runs_these_tests_is_fit_and_every_path_is_run_against_the_reference(examine):
    content, error = examine()
    assert content["problems"] == [] and error == ""
    assert content["machine"]["cores_usable"] == len(os.sched_getaffinity(0))
    assert content["machine"]["memory_bytes"] > 2**28
    versions = {package["name"]: package["version"] for package in content["packages"]}
    assert set(versions) >= {"numpy", "pandas", "pyyaml", "rich", "torch", "typer"}
    assert versions == {name: metadata.version(name) for name in versions}
    paths = {path["path"]: path for path in content["paths"] if path["device"] == "cpu"}
    assert set(paths) >= {"dense", "chunked", "sdpa"}
    assert all(path["works"] and 0 < path["max_relative_error"] < 1e-5 for path in paths.values())
    assert paths["dense"]["labels"] == list(module.LABELS_OF_CHECK)
    assert paths["sdpa"]["labels"] == ["S-pc"]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_a_path_that_computes_wrong_numbers_is_reported(examine, monkeypatch, factor):
    from madbench.mixers.srg import block_attention

    honest = block_attention.attend_in_chunks
    monkeypatch.setattr(block_attention, "attend_in_chunks", lambda mixer, p: factor * honest(mixer, p))
    content, error = examine()
    assert [path["path"] for path in content["paths"] if not path["works"]] == ["chunked"] * len(DEVICES)
    assert error == "\n".join(content["problems"])
    for line, device in zip(error.splitlines(), DEVICES, strict=True):
        assert line.startswith(f"path chunked on {device}: differs from the reference")


@pytest.mark.slow
def test_kernels_are_compared_in_16_bits_and_with_gradients(monkeypatch):
    pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")
    from madbench.cli.validate.machine import compare_path
    from madbench.mixers.srg.kernels import proof

    # the interpreter's bfloat16 is wrong for some labels without any fault, so a measured error is planted
    monkeypatch.setattr(proof, "largest_error", lambda program, device: 0.9 if program.by_lag else 0.0)
    proof.problem.cache_clear()
    row = compare_path("fused", DEVICES[-1])
    proof.problem.cache_clear()
    assert row["max_relative_error"] < 1e-4 and not row["works"]
    assert row["reason"].startswith("G-pcg-q-12o: the kernels compute wrong numbers here: relative error 9.0e-01")


@pytest.mark.slow
def test_a_path_that_raises_is_reported_with_the_reason(examine, monkeypatch):
    from madbench.mixers.srg import block_attention

    def fail(mixer, p):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(block_attention, "attend_in_chunks", fail)
    assert examine()[1].splitlines() == [f"path chunked on {device}: S-pc: no kernel image" for device in DEVICES]


@pytest.mark.slow
def test_a_path_that_refuses_every_label_is_reported(examine, monkeypatch):
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

    build = DynamicMLP.__init__

    def refuse(self, allocation, path="auto", **settings):
        if path == "dense":
            raise TrainingError("not here")
        build(self, allocation, path=path, **settings)

    monkeypatch.setattr(DynamicMLP, "__init__", refuse)
    refused = [f"path dense on {device}: refuses every label tried: not here" for device in DEVICES]
    assert examine()[1].splitlines() == refused


@pytest.mark.slow
def test_a_missing_or_too_old_package_is_reported_with_the_command_to_install_it(examine, monkeypatch, few_paths):
    version = metadata.version

    def of_another_machine(name):
        if name == "pandas":
            raise metadata.PackageNotFoundError(name)
        return "0.9.1" if name == "typer" else version(name)

    monkeypatch.setattr(metadata, "version", of_another_machine)
    content, error = examine()
    assert len(content["problems"]) == 2
    assert "pandas>=" in error and "not installed; install it with: pip install 'pandas>=" in error
    assert re.search(r"typer>=[0-9.]+: version 0.9.1 is here", error)


@pytest.fixture
def declare(monkeypatch, tmp_path):
    """``declare(dependencies, extra=packages)``: the checkout's project needs these packages."""

    def write(dependencies: list[str], **extras: list[str]) -> None:
        lines = ["[project]", 'name = "madbench"', f"dependencies = {dependencies}", "[project.optional-dependencies]"]
        (tmp_path / "checkout").mkdir()
        (tmp_path / "checkout" / "pyproject.toml").write_text(
            "\n".join([*lines, *(f"{name} = {packages}" for name, packages in extras.items())])
        )
        monkeypatch.setattr("madbench.extras.CHECKOUT", tmp_path / "checkout")

    return write


@pytest.mark.slow
def test_a_missing_extra_is_no_problem_and_is_shown_with_its_command(invoke, declare, tmp_path, few_paths):
    declare(["numpy>=1.26"], kernels=["no-such-package>=1"])
    result = invoke(validate, "--machine", "--results", tmp_path)
    assert result.exit_code == 0
    assert "kernels" in result.output and "install with: pip install -e '.[kernels]'" in result.output


@pytest.mark.slow
def test_a_package_of_an_extra_that_is_too_old_is_shown_with_its_version(invoke, declare, tmp_path, few_paths):
    declare(["numpy>=1.26"], slurm=["typer>=999", "rich>=1"])
    result = invoke(validate, "--machine", "--results", tmp_path)
    assert result.exit_code == 0
    (line,) = (line for line in result.output.splitlines() if " slurm " in line)
    assert line.strip().startswith("wrong")
    assert f"typer {metadata.version('typer')} (needs >=999), rich;" in line


def test_extras_of_an_installed_distribution_come_from_its_metadata(monkeypatch, tmp_path):
    declared = ["numpy>=1.26", "no-such-package>=1; extra == 'kernels'", 'pytest>=8; extra == "test"']
    monkeypatch.setattr("madbench.extras.CHECKOUT", tmp_path)  # which has no project
    monkeypatch.setattr(metadata, "requires", lambda name: declared if name == "madbench" else None)
    packages, extras = module.requirements()
    assert [(package["name"], package["needs"], package["fits"]) for package in packages] == [("numpy", ">=1.26", True)]
    assert [(extra["extra"], extra["installed"]) for extra in extras] == [("kernels", False), ("test", True)]
    assert extras[0]["install_with"] == "pip install 'madbench[kernels]'"


def test_versions_are_compared_as_numbers(declare, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cpu")
    declare(["torch>=2.6", "torch", "torch>=2.14"])
    packages, _ = module.requirements()
    assert [package["fits"] for package in packages] == [True, True, False]


@pytest.mark.slow
def test_the_results_folder_is_checked_without_creating_it(examine, tmp_path, few_paths):
    content, _ = examine()
    assert content["results"]["writable"] and not content["results"]["exists"]
    assert content["results"]["free_bytes"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_unwritable_results_folder_is_reported(refuse, tmp_path, few_paths):
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in refuse(
        validate, "--machine", "--results", tmp_path / "file" / "results"
    )


@pytest.mark.slow
def test_a_full_disk_is_reported(refuse, tmp_path, monkeypatch, few_paths):
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 1 << 80)
    assert "MiB free" in refuse(validate, "--machine", "--results", tmp_path)


@pytest.mark.slow
def test_validate_machine_shows_python_cores_devices_paths_and_disk(invoke, tmp_path):
    text = invoke(validate, "--machine", "--results", tmp_path).output
    for part in ("python", "cores usable", "bfloat16", "gpu" if "none that torch" in text else "cuda:0", "torch"):
        assert part in text
    assert "chunked cpu" in text and "largest relative error" in text and "GiB free" in text
