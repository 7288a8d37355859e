"""The option that chooses where jobs run, and the files with options for Ray and Slurm."""

from __future__ import annotations

import functools
import json
import re
import sys

import pytest

from madbench.cli.sweep import sweep
from madbench.config import from_mapping
from madbench.errors import ConfigError, MissingExtraError
from madbench.execute.machines import executor_of
from madbench.execute.ray import RayConfig, ray_executor
from madbench.execute.submitit import SlurmConfig, slurm_executor
from madbench.experiment import ExperimentOptions, prepare
from madbench.extras import how_to_install
from madbench.grid import GridFile, expand_grid
from madbench.training.devices import resolve_precision


@pytest.fixture
def executor_of_file(tmp_path):
    """``executor_of_file(name, device, slots, **options)``: executor and device for a file with these options."""

    def call(name, device="auto", slots=None, **options):
        (tmp_path / "cluster.yaml").write_text(json.dumps(options))
        return executor_of(f"{name}:{tmp_path / 'cluster.yaml'}", device, slots)

    return call


@pytest.fixture(autouse=True)
def slurm_here(monkeypatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 2))
    pytest.importorskip("ray")


def arguments_of(executor):
    return executor.keywords["connect"].keywords


def test_jobs_run_on_this_machine_without_the_option_on():
    assert executor_of(None, "cuda:1", 3) == (None, "cuda:1")


@pytest.mark.parametrize(
    ("on", "address"), [("ray", None), ("ray:head:6379", "head:6379"), ("ray://head:10001", "ray://head:10001")]
)
def test_ray_gets_its_address(on, address):
    executor, device = executor_of(on, "auto", 5)
    assert arguments_of(executor) == {"config": RayConfig(address, gpus_per_job=0), "slots": 5}
    assert device == "cpu"


def test_ray_gets_the_options_of_its_file(executor_of_file):
    options = {"address": "head:6379", "cpus_per_job": 2, "gpus_per_job": 0.5, "shared": True}
    executor, device = executor_of_file("ray", slots=5, **options)
    assert arguments_of(executor) == {"config": RayConfig(**options), "slots": 5}
    assert device == "cuda"


def test_slurm_gets_the_options_of_its_file(store, executor_of_file):
    extra = {"account": "me", "qos": "low", "exclusive": True}
    options = {"partition": "gpu", "minutes": 90, "memory_gb": 8, "cpus_per_job": 4, "sbatch": extra}
    executor, _ = executor_of_file("slurm", "cuda", 7, **options)
    with executor.keywords["connect"](store) as backend:
        parameters = backend.parameters
    assert backend.slots == 7 and backend.needs_gpu
    assert parameters["slurm_array_parallelism"] == 7
    assert parameters["slurm_additional_parameters"] == extra
    names = ("slurm_partition", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node")
    assert [parameters[name] for name in names] == ["gpu", 90, 8, 4, 1]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("ray", "partition", "gpu"), ("ray", "minutes", 5), ("slurm", "address", "auto"), ("slurm", "shared", True)],
)
def test_a_key_of_another_executor_is_an_error(executor_of_file, name, option, value):
    with pytest.raises(ConfigError, match=f"cluster.yaml: unknown key '{option}'"):
        executor_of_file(name, **{option: value})


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("slrm", "--on slrm: expected ray, .*; did you mean 'slurm'"),
        ("nosuch", "--on nosuch: expected ray, ray:ADDRESS, ray:FILE.yaml, slurm or slurm:FILE.yaml$"),
        ("slurm:gpu", "--on slurm:gpu: expected a file of options, such as slurm:cluster.yaml"),
        ("slurm:absent.yaml", "absent.yaml"),
    ],
)
def test_an_unknown_executor_name_is_an_error(on, says):
    with pytest.raises(ConfigError, match=says):
        executor_of(on, "auto", None)


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [("auto", None, ("cpu", 0)), ("cuda", None, ("cuda", 1)), ("auto", 2, ("cuda", 2)), ("cpu", 0, ("cpu", 0))],
)
def test_the_device_of_ray_workers_follows_the_reserved_gpus(executor_of_file, device, gpus, expected):
    executor, device = executor_of_file("ray", device, gpus_per_job=gpus)
    assert (device, arguments_of(executor)["config"].gpus_per_job) == expected


@pytest.mark.parametrize(
    ("device", "gpus", "says"),
    [
        ("cpu", 1, "gpus_per_job 1 has no effect with --device cpu"),
        ("cuda", 0, "--device cuda needs GPUs"),
        ("cuda:1", None, "sees its own GPUs only; expected auto, cpu or cuda"),
    ],
)
def test_devices_that_contradict_are_errors(executor_of_file, device, gpus, says):
    with pytest.raises(ConfigError, match=says):
        executor_of_file("ray", device, gpus_per_job=gpus)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (functools.partial(ray_executor, RayConfig(cpus_per_job=0)), "cpus_per_job must be at least 1, got 0"),
        (functools.partial(ray_executor, RayConfig(gpus_per_job=1.5)), "a fraction of 1 or a whole number, got 1.5"),
        (functools.partial(ray_executor, slots=0), "slots must be at least 1, got 0"),
        (functools.partial(slurm_executor, SlurmConfig(gpus_per_job=0.5)), "a whole number with Slurm, got 0.5"),
        (functools.partial(slurm_executor, SlurmConfig(minutes=0)), "minutes must be at least 1, got 0"),
        (functools.partial(slurm_executor, SlurmConfig(memory_gb=0)), "memory_gb must be above 0, got 0"),
    ],
)
def test_invalid_executor_settings_are_errors_of_the_user(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


def test_slurm_without_its_commands_is_an_error_that_names_the_login_node(monkeypatch):
    import submitit

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: -1))
    with pytest.raises(ConfigError, match="there is no Slurm here .* login node"):
        slurm_executor()


@pytest.mark.parametrize(
    ("make", "module", "extra"), [(ray_executor, "ray", "ray"), (slurm_executor, "submitit", "slurm")]
)
def test_a_missing_extra_is_named(monkeypatch, make, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(how_to_install(extra))):
        make()


def test_the_device_of_remote_workers_decides_the_precision(tiny):
    keys = {"labels": ["S"], "profile": tiny, "tasks": ["compression"], "set": {"precision": "auto"}}
    grid = expand_grid(from_mapping(GridFile, keys, "grid"))
    remote = prepare(grid, ExperimentOptions(device="cuda", is_remote=True))
    assert (remote.device, remote.protocol.precision) == ("cuda", "bfloat16")
    with pytest.raises(ConfigError, match="on other machines a job has either cpu or cuda"):
        prepare(grid, ExperimentOptions(device="auto", is_remote=True))


def test_precision_elsewhere_does_not_depend_on_this_processor(monkeypatch):
    monkeypatch.setattr("madbench.training.devices.cpu_has_bfloat16_units", lambda: True)
    assert resolve_precision("auto", "cpu") == "bfloat16"
    assert resolve_precision("auto", "cpu", is_here=False) == "float32"
    assert resolve_precision("bfloat16", "cpu", is_here=False) == "bfloat16"


def test_a_dry_run_refuses_the_option_on(refuse, tiny):
    message = refuse(sweep, "S", "--profile", tiny, "--on", "ray", "--dry-run")
    assert message == "--dry-run times a few steps on this machine; leave out --on ray"
