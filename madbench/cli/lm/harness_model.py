"""The language model of a stored run for the command line of lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from madbench.cli.shared.options import RESULTS
from madbench.cli.shared.trained_models import TrainedModel
from madbench.errors import ConfigError
from madbench.lm_eval.model import HarnessModel
from madbench.text.options import CorpusOptions
from madbench.training.devices import resolve_device


class StoredModel(HarnessModel):
    """The language model that ``--model_args run=RUN,results=FOLDER,corpus=FOLDER,seq_len=N`` names.

    ``RUN`` is a label, the first digits of a run's id, or a file of weights. ``trust=my:my_mixers.MyMixer`` allows the
    code of your own label. Raises ``ConfigError`` for an invalid argument.
    """

    def __init__(
        self,
        run: str,
        results: str = str(RESULTS),
        corpus: str | None = None,
        seq_len: int | None = None,
        device: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        trust: str | None = None,
    ):
        if not isinstance(run, str):  # lm-evaluation-harness converts digits to numbers
            raise ConfigError(f"run={run}: read as a number; give another digit of the run's id, or its label")
        trained = TrainedModel(run, Path(results), trust=[trust] if trust else None)
        vocabulary = trained.corpus(CorpusOptions(Path(corpus) if corpus is not None else None)).tokenizer()
        rows = max_batch_size if batch_size in (None, "auto") else batch_size
        super().__init__(
            trained.language_model, trained.job, vocabulary, resolve_device(device or "auto"), seq_len, _count(rows)
        )


def _count(rows: Any) -> int | None:
    if rows is None or str(rows).isdecimal():
        return int(rows) if rows else None
    raise ConfigError(f"batch_size {rows}: expected a number of sequences, or auto")
