"""Jobs started from every kind of script, in folders with files of any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SWEEP = """
import sys
import fake_sweep as fake
from madbench.execute.local import run_jobs
from madbench.store.runs import Store

def sweep(seed):
    jobs = [fake.make_job(seed + number) for number in range(2)]
    return run_jobs(fake.alone(jobs), Store.open("results"), fake.train).finished
"""
SCRIPT_WITH_GUARD = f"{SWEEP}\nif __name__ == '__main__':\n    print(sweep(0), 'finished')\n"
BARE = f"{SWEEP}\nprint(sweep(0), 'finished')\n"
POOL = """
import multiprocessing, concurrent.futures
if __name__ == '__main__':
    context = multiprocessing.get_context('spawn')
"""
IN_POOL = f"{SWEEP}{POOL}    with context.Pool(1) as pool:\n        print(pool.map(sweep, [0]), 'finished')\n"
IN_EXECUTOR = f"""{SWEEP}{POOL}
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        print(*pool.map(sweep, [0]), 'finished')
"""


@pytest.fixture
def python(tmp_path):
    """``python("-", input=program)``: run an interpreter in an empty folder, and return the ended process."""

    def call(*words, **how):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
        command = [sys.executable, *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, **how
        )

    return call


@pytest.fixture
def script(tmp_path):
    def write(program):
        path = tmp_path / "script.py"
        path.write_text(program)
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("words", "program"), [(["-"], BARE), ([], SCRIPT_WITH_GUARD)], ids=["python -", "python"])
def test_a_script_from_standard_input_runs_its_jobs(python, words, program):
    ended = python(*words, input=program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 finished\n", "")


@pytest.mark.slow
def test_semaphores_of_killed_workers_are_removed_without_a_warning(python):
    ended = python("-c", BARE.replace("fake.train", "fake.train_with_a_lock"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 finished\n", "")


@pytest.mark.slow
def test_a_script_given_with_python_c_runs_its_jobs(python):
    assert python("-c", BARE).stdout == "2 finished\n"


@pytest.mark.slow
def test_a_script_that_was_deleted_runs_its_jobs(python, script):
    path = script(SCRIPT_WITH_GUARD.replace("    print(", "    import os; os.unlink(__file__)\n    print("))
    assert python(path).stdout == "2 finished\n"


@pytest.mark.slow
@pytest.mark.parametrize("shadow", ["signal", "random", "profile"])
def test_a_script_folder_that_shadows_standard_modules_stops_no_worker(python, script, tmp_path, shadow):
    (tmp_path / f"{shadow}.py").write_text("raise SystemExit('the wrong module')\n")
    path = script(BARE)
    ended = python("-P", path)  # as the command madbench starts, without the folder of the script on the path
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 finished\n", "")
    notebook = f"import signal, random, profile, sys\nsys.path.insert(0, '')\n{BARE}"
    shutil.rmtree(tmp_path / "results")
    assert python("-P", "-", input=notebook).stdout == "2 finished\n"


@pytest.mark.slow
def test_workers_do_not_run_the_top_level_of_a_script(python, script, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(f"print('top')\n{BARE}")
    for words in ([script(f"print('top')\n{BARE}")], ["-m", "script"], ["-m", "package"]):
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
        ended = python(*words)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "top\n2 finished\n", "")


MINE = """
import madbench
from torch import nn

class Mine(nn.Linear):
    def __init__(self, d_model):
        super().__init__(d_model, d_model)

def main():
    scores = madbench.run([Mine], tasks=["memorization"], seeds=[0], profile="quick", overrides="training.epochs=1")
    print(len(scores), "scored")
"""


@pytest.mark.slow
def test_a_mixer_class_of_a_script_without_a_main_guard_is_an_error_with_advice(python, script):
    guarded = python(script(f"{MINE}\nif __name__ == '__main__':\n    main()\n"))
    assert guarded.returncode == 0 and guarded.stdout.endswith("1 scored\n"), guarded.stderr
    shutil.rmtree(script("").parent / "results")
    bare = python(script(f"{MINE}\nmain()\n"))
    assert "start jobs under if __name__ == '__main__':" in bare.stderr.splitlines()[-1]


@pytest.mark.slow
def test_running_jobs_in_a_multiprocessing_pool_is_an_error(python, script):
    ended = python(script(IN_POOL))
    assert ended.returncode == 1 and "multiprocessing.Pool" in ended.stderr.splitlines()[-1]
    assert "TrainingError" in ended.stderr and "AssertionError" not in ended.stderr and "__main__'" not in ended.stderr


@pytest.mark.slow
def test_jobs_can_be_run_from_a_process_pool_executor(python, script):
    assert python(script(IN_EXECUTOR)).stdout == "2 finished\n"
