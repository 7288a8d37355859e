"""The library of matrix products in the records of runs on a CPU."""

from __future__ import annotations

import pytest
import torch

from madbench.execute.base import Policy
from madbench.execute.products import VARIABLES, product_library, with_products
from madbench.execute.worker import Assignment, work
from madbench.jobs import Record
from madbench.mixers.ops import products
from sample_jobs import mad_job


@pytest.fixture
def plain(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("is_faster", [True, False])
def test_the_recorded_library_is_the_one_that_large_products_use(monkeypatch, is_faster):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(products, "onednn_is_faster", lambda: is_faster)
    assert product_library() == ("oneDNN for large products, else MKL" if is_faster else "MKL")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert product_library().endswith("MKL, MKL_CBWR=AVX2")


def test_every_record_of_a_run_on_a_cpu_names_the_product_library(tmp_path):
    jobs = [mad_job(seed=seed) for seed in range(2)]
    handed_in = []

    def train(group, works, report):
        record = Record("finished", {"accuracy": 1.0}, [], {"processor": "x"})
        report.ended(group[0], record)
        return [record, Record("finished", {}, [], {"device": "a GPU"})]

    works = [tmp_path / job.id for job in jobs]
    for folder in works:
        folder.mkdir()
    result = work(Assignment(jobs, train, Policy(), works), lambda *_: None, handed_in.append)
    first, second = result.records
    assert first.details == handed_in[0].record.details == {"processor": "x", "products": product_library()}
    assert second.details == {"device": "a GPU"} == with_products(second).details
