"""Protocols of language-model runs."""

from __future__ import annotations

from madbench.store.reading import Run
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.protocol import Protocol, recognize_protocol


def language_protocol(*runs: Run) -> Protocol:
    """The protocol that all ``runs``, stored runs of language models, follow."""
    return recognize_protocol(LANGUAGE, [(run.job, run.record.details) for run in runs])
