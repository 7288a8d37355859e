"""Models in lm-evaluation-harness: scores follow from the model's likelihoods and are stored with the run."""

from __future__ import annotations

import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of its libraries
pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: madbench[lm-eval]")

import datasets  # noqa: E402
from lm_eval.utils import get_rolling_token_windows  # noqa: E402

from madbench.cli import main as madbench_main  # noqa: E402
from madbench.cli.lm.harness_model import StoredModel  # noqa: E402
from madbench.errors import ConfigError  # noqa: E402
from madbench.lm_eval.__main__ import main as command_line  # noqa: E402
from madbench.lm_eval.measure import EvaluationOptions, Tasks, measure, metrics_of  # noqa: E402
from madbench.models.gpt import generate  # noqa: E402
from madbench.models.likelihood import windows  # noqa: E402
from madbench.store.runs import Store  # noqa: E402

LABELS = ["G-cg-q-12o", "S-p"]


@pytest.fixture(autouse=True, scope="module")
def offline(tmp_path_factory):
    """Keep the cache of data sets in the test folder, and download nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        yield


@pytest.fixture(scope="module", params=LABELS)
def model(request, hens) -> StoredModel:
    return StoredModel(request.param, str(hens / "results"), device="cpu")


def requests_of(*arguments):
    return [SimpleNamespace(args=args) for args in arguments]


def float64(model: StoredModel, context: str, text: str) -> tuple[float, bool]:
    """The log-likelihood computed id by id in float64. An empty context is the end of a text."""
    encode = model.vocabulary.encode
    ids = encode(context).tolist() or [model.eot_token_id]
    gpt, total, greedy = model.model.double(), 0.0, True
    with torch.inference_mode():
        for token in encode(text).tolist():
            log_p = gpt(torch.tensor([ids[-model.max_length :]]))[0, -1].log_softmax(-1)
            total, greedy = total + float(log_p[token]), greedy and int(log_p.argmax()) == token
            ids.append(token)
    model.model.float()
    return total, greedy


def test_likelihoods_equal_sums_in_float64(model):
    pairs = [("The brown hen", " sat"), ("", "The brown"), ("The brown hen", " flew"), ("", "\nThe")]
    found = model.loglikelihood(requests_of(*pairs, ("The brown hen ", "sat"), ("\n", "The")), disable_tqdm=True)
    for (context, text), (log_p, is_greedy) in zip(pairs, found):
        expected = float64(model, context, text)
        assert log_p == pytest.approx(expected[0], abs=1e-4) and is_greedy == expected[1]
    assert found[0][1] and not found[2][1]
    assert found[4:] == [found[0], found[3]]  # white space at the end of a context belongs to what follows


def test_a_long_context_is_cut_at_its_beginning(model):
    context = "every grain. The brown hen sat by the mill and counted"
    (whole,) = model.loglikelihood(requests_of((context, " every")), disable_tqdm=True)
    newest = context[-(model.max_length - len(" every") + 1) :]
    (cut,) = model.loglikelihood(requests_of((newest, " every")), disable_tqdm=True)
    assert whole == cut and len(newest) < len(context)


def test_a_text_is_scored_in_the_windows_of_the_harness(model):
    text = "The brown hen sat by the mill and counted every grain.\n" * 2 + "The end."
    ids = model.tok_encode(text)
    theirs = get_rolling_token_windows(ids, model.eot_token_id, model.max_length, 1)
    ours = list(windows([model.eot_token_id], ids, model.max_length))
    assert ours == [(tuple(inputs), tuple(targets)) for inputs, targets in theirs] and len(ours) > 2
    (found,) = model.loglikelihood_rolling(requests_of((text,)), disable_tqdm=True)
    gpt, expected = model.model.double(), 0.0
    with torch.inference_mode():
        for inputs, targets in ours:
            log_p = gpt(torch.tensor([inputs]))[0, -len(targets) :].log_softmax(-1)
            expected += float(log_p.gather(1, torch.tensor(targets)[:, None]).sum())
    model.model.float()
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_order_of_a_batch_changes_nothing(model):
    rng = random.Random(0)
    pairs = [("The brown hen sat by the mill"[:n], " and counted"[:m]) for n in range(0, 28, 3) for m in (1, 4, 12)]
    order = rng.sample(range(len(pairs)), len(pairs))
    found = model.loglikelihood(requests_of(*pairs), disable_tqdm=True)
    shuffled = model.loglikelihood(requests_of(*(pairs[i] for i in order)), disable_tqdm=True)
    assert shuffled == [found[i] for i in order]


def test_generated_texts_equal_those_of_lm_sample_up_to_the_stop_string(model):
    how = {"until": ["."], "max_gen_toks": 60, "do_sample": False}
    prompts = ["The brown", "The white", "sat by the mill", ""]
    found = model.generate_until(requests_of(*((prompt, dict(how)) for prompt in prompts)), disable_tqdm=True)
    for prompt, text in zip(prompts, found):
        ids = model.tok_encode(prompt) or [model.eot_token_id]
        alone = [*generate(model.model, ids, 60, generator=torch.Generator(), temperature=0, vocab_size=257)]
        alone = alone[: alone.index(model.eot_token_id)] if model.eot_token_id in alone else alone
        assert text == model.tok_decode(alone).split(".")[0]
    assert found[0].startswith(" hen sat by the mill and ") and "." not in "".join(found)
    drawn = {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0, "top_k": 5}
    first, again = (model.generate_until(requests_of(("The", dict(drawn))), disable_tqdm=True) for _ in range(2))
    assert first == again and len(first[0]) == 8
    with pytest.raises(ConfigError, match="generation_kwargs top_p: not supported"):
        model.generate_until(requests_of(("The", drawn | {"top_p": 0.9})), disable_tqdm=True)


def test_accuracy_of_a_multiple_choice_task_follows_from_the_likelihoods(model, hens):
    (measured,) = measure(model, Tasks(["hens_choice"], hens / "tasks"))
    rows = [json.loads(line) for line in (hens / "tasks" / "hens.jsonl").read_text().splitlines()]
    rights = {"acc": [], "acc_norm": []}
    for row in rows:
        sums = np.array([float64(model, row["question"], choice)[0] for choice in row["choices"]])
        rights["acc"].append(sums.argmax() == row["answer"])
        lengths = np.array([len(choice) for choice in row["choices"]])
        rights["acc_norm"].append((sums / lengths).argmax() == row["answer"])
    for name, right in rights.items():
        assert measured.values[name] == pytest.approx(np.mean(right))
        assert measured.values[f"{name}_stderr"] == pytest.approx(np.std(right, ddof=1) / len(right) ** 0.5)
    assert measured.values["acc"] > 0.6
    assert measured.settings == {"task": "hens_choice", "shots": 0}
    details = measured.details
    assert (details["task_version"], details["examples"], details["examples_of_task"]) == (2.0, 6, 6)
    assert details["higher_is_better"] == {"acc": True, "acc_norm": True} and details["lm_eval"]


def test_groups_tags_shots_and_limits_of_tasks_are_supported(model, hens):
    tasks = hens / "tasks"
    group, *tagged = measure(model, Tasks(["hens_all", "hens"], tasks), EvaluationOptions(limit=4))
    assert group.settings == {"task": "hens_all", "shots": None, "limit": 4}
    of_tasks = group.details["tasks"]
    assert set(of_tasks) == {"hens_choice", "hens_again"} and group.details["examples"] == 8
    assert group.values["acc"] == pytest.approx(sum(each["acc"] for each in of_tasks.values()) / 2)
    assert group.details["task_version"] == {"hens_choice": 2.0, "hens_again": 2.1}
    assert {each.settings["task"] for each in tagged} == {"hens_choice", "hens_text", "hens_written"}
    (shown,) = measure(model, Tasks(["hens_again"], tasks))
    assert shown.settings == {"task": "hens_again", "shots": 2}
    (more,) = measure(model, Tasks(["hens_again"], tasks), EvaluationOptions(shots=1))
    assert more.settings == {"task": "hens_again", "shots": 1}
    with pytest.raises(ConfigError, match="--shots 2 has no effect on task hens_written, whose questions show none"):
        list(measure(model, Tasks(["hens_written"], tasks), EvaluationOptions(shots=2)))


def test_answers_are_cached_between_evaluations(model, hens, tmp_path, monkeypatch):
    asking = EvaluationOptions(cache=tmp_path / "answers")
    (first,) = measure(model, Tasks(["hens_choice"], hens / "tasks"), asking)
    monkeypatch.setattr("madbench.lm_eval.model.log_likelihoods", lambda *_, **__: pytest.fail("asked again"))
    (again,) = measure(model, Tasks(["hens_choice"], hens / "tasks"), asking)
    assert again.values == first.values


@pytest.fixture
def harness(hens, monkeypatch, capsys):
    """Run ``python -m madbench.lm_eval`` without the harness's index of its own tasks, which takes a minute."""
    from lm_eval.tasks import TaskManager

    original = TaskManager.__init__
    without = lambda self, *words, **how: original(self, *words, **how | {"include_defaults": False})  # noqa: E731
    monkeypatch.setattr(TaskManager, "__init__", without)

    def call(label: str, *more: str, tasks: str = "hens_text") -> str:
        words = ["--model", "madbench", "--model_args", f"run={label},results={hens / 'results'}", "--tasks", tasks]
        monkeypatch.setattr(sys, "argv", ["lm_eval", *words, "--include_path", str(hens / "tasks"), *more])
        command_line()
        return capsys.readouterr().out

    return call


def is_measured(printed: str, hens, label: str) -> bool:
    """True if the harness printed the bits per byte that ``measure`` returns, to the printed digits."""
    model = StoredModel(label, str(hens / "results"), device="cpu")
    (measured,) = measure(model, Tasks(["hens_text"], hens / "tasks"))
    bits = float(printed.partition("bits_per_byte")[2].split("|")[2])
    return bits == pytest.approx(measured.values["bits_per_byte"], abs=0.006)


def test_the_harness_s_own_command_line_drives_a_stored_model(hens, harness):
    printed = harness("S-p", "--device", "cpu", "--batch_size", "2", tasks="hens_choice,hens_text")
    assert is_measured(printed, hens, "S-p") and "acc_norm" in printed


def test_the_harness_s_own_command_line_runs_on_a_device_of_this_machine(hens, harness, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert is_measured(harness("S-p"), hens, "S-p")
    for words, message in (
        (["--device", "cuda:0"], "this machine has 0 CUDA devices; use --device cpu"),
        (["--limit", "2"], "NO-SUCH"),
    ):
        with pytest.raises(SystemExit, match=message):
            harness("S-p" if "--device" in words else "NO-SUCH", *words)


def test_a_cache_of_the_harness_serves_one_model(hens, harness, tmp_path, monkeypatch):
    cache = ("--use_cache", str(tmp_path / "answers"))
    first = harness("S-p", *cache)
    with pytest.raises(SystemExit, match=r"answers_rank0.db: holds answers of S-p \(run \w+\).* for G-cg-q-12o"):
        harness("G-cg-q-12o", *cache)
    monkeypatch.setattr("madbench.lm_eval.model.log_likelihoods", lambda *_, **__: pytest.fail("asked again"))
    assert harness("S-p", *cache) == first
    monkeypatch.setattr(StoredModel, "identity", "changed weights")
    with pytest.raises(SystemExit, match="with other weights, settings or code"):
        harness("S-p", *cache)


def test_a_cache_that_names_no_model_is_refused(hens, harness, tmp_path):
    from sqlitedict import SqliteDict

    with SqliteDict(str(tmp_path / "answers_rank0.db"), autocommit=True) as answers:
        answers["question"] = 0.5
    with pytest.raises(SystemExit, match="answers of a model that it does not name"):
        harness("S-p", "--use_cache", str(tmp_path / "answers"))


def test_lm_evaluate_stores_prints_and_ranks(hens, monkeypatch, capsys):
    monkeypatch.chdir(hens)
    words = ["lm", "evaluate", *LABELS, "--tasks", "repetition,hens_choice,hens_text", "--include", "tasks"]

    def call(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["madbench", *words, "--device", "cpu", "--limit", "5", *more])
        with pytest.raises(SystemExit) as ended:
            madbench_main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return printed.out

    content = json.loads(call("-f", "json"))
    assert [each["label"] for each in content] == LABELS
    assert sum(each["standing"]["average_rank"] for each in content) == 3
    store = Store.open(hens / "results", create=False)
    for each in content:
        tasks = {row["task"]: row for row in each["tasks"]}
        assert tasks["hens_choice"]["limit"] == 5 and tasks["hens_choice"]["examples"] == 5
        assert tasks["hens_choice"]["examples_of_task"] == 6 and tasks["repetition"]["questions"] == 5
        stored = {one.settings["task"]: one for one in store.measurements(each["id"]) if one.name == "benchmark"}
        assert stored["hens_choice"].values["acc_norm"] == tasks["hens_choice"]["acc_norm"]
    printed = call()
    assert "hens_choice acc " in printed and "of 5 of 6 examples, version 2.0" in printed
    table = [line for line in printed.splitlines() if "Avg Rank" in line]
    assert len(table) == 1 and "hens_text word_perplexity" in table[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["hens_remote"], "task hens_remote: cannot be loaded .* come from huggingface.co at the first use"),
        (["hens_lost"], "task hens_lost: cannot be loaded"),
    ],
)
def test_data_of_the_harness_that_is_not_on_this_machine_is_an_error(model, hens, tmp_path, names, message):
    for name, source in (("hens_remote", "nobody/hens"), ("hens_lost", "json")):
        text = (hens / "tasks" / "hens.yaml").read_text().replace("hens_choice", name).replace("hens.jsonl", "no.jsonl")
        (tmp_path / f"{name}.yaml").write_text(text.replace("dataset_path: json", f"dataset_path: {source}"))
    with pytest.raises(ConfigError, match=message):
        list(measure(model, Tasks(names, tmp_path)))


def test_invalid_lengths_batches_and_run_ids_of_stored_models_are_refused(hens):
    results = str(hens / "results")
    with pytest.raises(ConfigError, match="seq_len 64: G-cg-q-12o has positions for the 32 tokens"):
        StoredModel("G-cg-q-12o", results, seq_len=64)
    assert StoredModel("S-p", results, seq_len=64).max_length == 64
    with pytest.raises(ConfigError, match="read as a number"):
        StoredModel(12345678, results)
    with pytest.raises(ConfigError, match="expected a number of sequences"):
        StoredModel("S-p", results, batch_size="auto:4")


def test_numbers_without_a_filter_have_short_names():
    values = {"alias": "a", "acc,none": 0.5, "acc_stderr,none": "N/A", "em,strict": 0.25, "em_stderr,strict": 0.125}
    assert metrics_of(values) == {"acc": 0.5, "em (strict)": 0.25, "em (strict)_stderr": 0.125}
