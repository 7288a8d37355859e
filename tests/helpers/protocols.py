"""Protocols of language-model runs."""

from __future__ import annotations

from madbench.jobs import Job
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.protocol import Protocol, protocol_id, recognise_protocol


def language_protocol(*runs) -> Protocol:
    """The protocol that all ``runs``, stored runs of language models, follow."""
    return recognise_protocol(LANGUAGE, [(run.job, run.record.details) for run in runs])


def language_protocol_id(job: Job) -> str:
    return protocol_id(LANGUAGE, job)
