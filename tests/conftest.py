"""What every test shares: one thread a process (small tests, run side by side, compared bit for bit), and opting in."""

from __future__ import annotations

import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; the processes under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take more than ten seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="takes more than ten seconds; run it with --slow"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
