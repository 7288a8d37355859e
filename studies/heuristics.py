"""Compute the score of the best answer without context, for every setting of the shipped profiles.

    python studies/heuristics.py > tasks/heuristics.yaml

Tables of these settings then need not draw questions (:func:`madbench.tasks.heuristic`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from madbench.suites.mad.suite import MAD
from madbench.tasks import make_setting, questions_text
from madbench.tasks.base import TaskSetting
from madbench.tasks.heuristics import heuristic_accuracy


def shipped_settings() -> Iterator[tuple[str, TaskSetting]]:
    """The settings of the tasks that shipped profiles train. Settings with equal questions appear once."""
    known = set()
    for task in MAD.usual_tasks():
        for profile in MAD.shipped().values():
            for mapping in profile.settings(task):
                setting = make_setting(task, mapping, task)
                if (key := (task, questions_text(setting))) not in known:
                    known.add(key)
                    yield task, setting


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    print("# Accuracy of the best answer without context: python studies/heuristics.py")
    previous = ""
    for task, setting in shipped_settings():
        if task != previous:
            print(f"{task}:")
        print(f"  {questions_text(setting)}: {heuristic_accuracy(setting):.6f}", flush=True)
        previous = task


if __name__ == "__main__":
    main()
