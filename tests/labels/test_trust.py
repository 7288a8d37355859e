"""Trust in labels: code of labels in a user's grid may be imported, unless the grid lies among stored runs."""

from __future__ import annotations

import pytest

from madbench.grid import load_grid
from madbench.labels import trust

LABEL = "my:some_mixers.Mixer"


@pytest.fixture(autouse=True)
def untrusted():
    trust.forget_allowed()
    yield
    trust.forget_allowed()


@pytest.mark.parametrize(("folder", "is_trusted"), [("grids", True), ("results", False), ("results/sweeps", False)])
@pytest.mark.parametrize("spec", [LABEL, "@set.yaml"])
def test_a_grid_inside_a_results_folder_trusts_no_module(tmp_path, folder, is_trusted, spec):
    (tmp_path / "results" / "runs" / "0123").mkdir(parents=True)
    (tmp_path / "results" / "runs" / "0123" / "job.json").write_text("{}")
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "set.yaml").write_text(f"description: x\nlabels: ['{LABEL}']\n")
    if spec != LABEL:
        spec = f"@{tmp_path / folder / 'set.yaml'}"
    (tmp_path / folder / "grid.yaml").write_text(f"labels: ['{spec}']\n")
    load_grid(tmp_path / folder / "grid.yaml", {})
    assert trust.is_allowed(LABEL) == is_trusted


def test_a_set_file_trusts_its_modules_only_in_verbs_that_train(tmp_path):
    (tmp_path / "set.yaml").write_text(f"description: x\nlabels: ['{LABEL}']\n")
    trust.allow_typed([f"@{tmp_path / 'set.yaml'}"])
    assert not trust.is_allowed(LABEL)
    trust.allow_typed([f"@{tmp_path / 'set.yaml'}"], with_files=True)
    assert trust.is_allowed(LABEL)
    with trust.allow_only(()):
        assert not trust.is_allowed(LABEL)
    trust.forget_allowed()
    trust.allow_typed("{S,my:some_mixers.Mixer}")
    assert trust.is_allowed(LABEL)
