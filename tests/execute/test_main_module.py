"""Jobs that are started by scripts of every kind, which worker processes import or cannot import."""

from __future__ import annotations

import os
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
GUARDED = f"{SWEEP}\nif __name__ == '__main__':\n    print(sweep(0), 'finished')\n"
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
    """``python("-", input=program)``: an interpreter in an empty folder, and how it ended."""

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
@pytest.mark.parametrize(("words", "program"), [(["-"], BARE), ([], GUARDED)], ids=["python -", "python"])
def test_a_script_from_standard_input_runs_its_jobs(python, words, program):
    ended = python(*words, input=program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 finished\n", "")


@pytest.mark.slow
def test_a_line_of_the_shell_runs_its_jobs(python):
    assert python("-c", BARE).stdout == "2 finished\n"


@pytest.mark.slow
def test_a_script_that_was_deleted_runs_its_jobs(python, script):
    path = script(GUARDED.replace("    print(", "    import os; os.unlink(__file__)\n    print("))
    assert python(path).stdout == "2 finished\n"


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_to_have_one(python, script):
    ended = python(script(BARE))
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr.splitlines()[-1].startswith("madbench.errors.TrainingError: ")
    assert "script.py: it starts jobs when it is imported" in ended.stderr
    assert "if __name__ == '__main__':" in ended.stderr
    assert ended.stderr.count("Traceback") == 1 and "bootstrapping" not in ended.stderr


@pytest.mark.slow
def test_a_worker_of_a_pool_is_told_that_it_may_not_start_processes(python, script):
    ended = python(script(IN_POOL))
    assert ended.returncode == 1 and "multiprocessing.Pool" in ended.stderr.splitlines()[-1]
    assert "TrainingError" in ended.stderr and "AssertionError" not in ended.stderr and "__main__'" not in ended.stderr


@pytest.mark.slow
def test_a_worker_of_an_executor_runs_its_jobs(python, script):
    assert python(script(IN_EXECUTOR)).stdout == "2 finished\n"


@pytest.mark.slow
def test_a_script_that_fails_in_its_workers_is_not_said_to_lack_a_guard(python, script):
    program = GUARDED.replace("if __name__", "if __name__ != '__main__':\n    sys.exit(7)\nif __name__", 1)
    ended = python(script(program))
    last = ended.stderr.splitlines()[-1]
    assert "did not start: the process ended with exit code 7" in last and "__main__" not in last
