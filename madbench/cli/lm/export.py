from __future__ import annotations

from pathlib import Path

from madbench.cli.lm.finding import ModelArgument, TrainedModel
from madbench.cli.options import RESULTS, ResultsOption, option
from madbench.cli.text import quantity
from madbench.errors import ConfigError


def export(
    run: ModelArgument,
    out: option(Path | None, "File to write.", "--out", "-o", show_default="LABEL-ID.safetensors") = None,
    force: option(bool, "Replace the file if it is there.", "--force") = False,
    results: ResultsOption = RESULTS,
) -> None:
    """Write the weights of a language model as safetensors, with its job in the file's metadata.

    A checkpoint of an unfinished run is exported too. In Python,
    madbench.training.weights.load_model reads the file into a model.

    [bold]Examples[/bold]

      madbench lm export G-cg-q-12o
      madbench lm export 3f9a --out hyperglu.safetensors
    """
    from madbench.training.weights import save_weights

    trained = TrainedModel.find(run, results)
    job = trained.job
    out = out or Path(f"{job.label}-{job.id[:8]}.safetensors")
    if out.exists() and not force:
        raise ConfigError(f"{out}: already exists; give --force to replace it, or another --out")
    save_weights(out, trained.model, job)
    print(f"{out}: {quantity(sum(p.numel() for p in trained.model.parameters()))} parameters of {job.label}")
