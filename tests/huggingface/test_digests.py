"""A folder whose job or weights were changed does not load. One written by ``save_pretrained`` does."""

from __future__ import annotations

import functools
import json
import logging
import operator

import pytest
import torch

from madbench.errors import ConfigError, MadbenchError, StoreError
from sample_jobs import language_job, mad_job

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")

from madbench.huggingface.configuration import MadbenchConfig  # noqa: E402

IDS = torch.arange(10)[None]


def open_model(folder, **how):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **how)


def change_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def change_weights(folder, change):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["job"].update(label="S"),
        lambda config: config["job"].update(label="S-pc"),  # of other shapes
        lambda config: config["job"]["model"].update(seq_len=24),
        lambda config: config["job"].update(seed=7),
        lambda config: config.update(digests=7),
        lambda config: config.update(digests={"job": config["digests"]["job"]}),
    ],
)
def test_a_changed_job_is_refused(make_folder, change):
    folder = make_folder()
    change_config(folder, change)
    with pytest.raises(StoreError, match="config.json"):
        open_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights["model.norm.weight"].add_(1e-6),
        lambda weights: weights.pop("model.norm.weight"),
        lambda weights: weights.update(more=torch.ones(2)),
        lambda weights: weights.update({"model.norm.weight": weights["model.norm.weight"].double()}),
    ],
)
def test_changed_weights_are_refused(make_folder, change):
    folder = make_folder()
    change_weights(folder, change)
    with pytest.raises(StoreError, match="weights differ"):
        open_model(folder)


def test_equal_weights_in_other_files_are_accepted(make_folder, tmp_path):
    folder = make_folder()
    change_weights(folder, lambda weights: None)
    model = open_model(folder)
    model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert torch.equal(open_model(tmp_path / "shards")(IDS).logits, model(IDS).logits)
    (shard, *_) = (tmp_path / "shards").glob("*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 64
    shard.write_bytes(content)
    with pytest.raises(StoreError, match="weights differ"):
        open_model(tmp_path / "shards")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trained_copy_has_digests_of_its_own(make_folder, tmp_path, dtype):
    model = open_model(make_folder(), dtype=dtype)
    with torch.no_grad():
        model.model.norm.weight.add_(1)
    model.save_pretrained(tmp_path / "copy")
    assert torch.equal(open_model(tmp_path / "copy", dtype="auto")(IDS).logits, model(IDS).logits)
    change_weights(tmp_path / "copy", lambda weights: weights["model.norm.weight"].sub_(1))
    with pytest.raises(StoreError, match="weights differ"):
        open_model(tmp_path / "copy")


def test_the_configuration_of_an_open_model_claims_no_digests(make_folder, tmp_path):
    """Another program may save this configuration beside weights of its own."""
    model = open_model(make_folder())
    model.config.save_pretrained(tmp_path / "config")
    assert not json.loads((tmp_path / "config" / "config.json").read_text()).get("digests")
    model.save_pretrained(tmp_path / "copy")
    assert model.config.digests is None


def test_a_folder_without_digests_is_opened_with_a_warning(make_folder, caplog):
    folder = make_folder()
    change_config(folder, lambda config: config.pop("digests"))
    with caplog.at_level(logging.WARNING):
        assert open_model(folder)(IDS).logits.shape == (1, 10, 320)
    assert any("no digests" in record.message for record in caplog.records)


@pytest.mark.parametrize("path", [(), ("model",), ("model", "d_model"), ("setting",), ("setting", "vocab_size")])
@pytest.mark.parametrize("value", [{"a": 1}, 3.5, "text", [1], True, 10**400])
def test_a_job_of_wrong_types_raises_a_madbench_error(path, value):
    config = {"job": language_job().to_dict()}
    *parents, last = ("job", *path)
    functools.reduce(operator.getitem, parents, config)[last] = value
    with pytest.raises(MadbenchError):
        MadbenchConfig(**config)


DEEP = json.loads("[" * 70 + "]" * 70)


@pytest.mark.parametrize(
    "change",
    [{"seed": -1}, {"seed": 2**63}, {"label": "S\x1b"}, {"setting": {"corpus": "c", "vocab_size": 9, "x": DEEP}}],
)
def test_a_job_invalid_for_a_store_raises_a_config_error(change):
    with pytest.raises(ConfigError, match="config.json: job"):
        MadbenchConfig(job=language_job().to_dict() | change)


def test_the_job_of_another_suite_is_no_language_model():
    with pytest.raises(ConfigError, match="language model"):
        MadbenchConfig.from_job(mad_job())


@pytest.mark.parametrize("change", [{"dtype": "floatx"}, {"id2label": 3}, {"num_labels": "x"}], ids=str)
def test_configuration_entries_that_transformers_rejects_raise_one_sentence(make_folder, change):
    folder = make_folder()
    change_config(folder, lambda config: config.update(change))
    for auto in (transformers.AutoConfig, transformers.AutoModelForCausalLM):
        with pytest.raises(ConfigError, match="config.json: an entry that transformers cannot read: "):
            auto.from_pretrained(folder)
