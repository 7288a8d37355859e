"""``madbench lm export``: the weights of a language model in one file."""

from __future__ import annotations

from pathlib import Path

from madbench.cli import options
from madbench.cli.parameters import option, output_option
from madbench.cli.printing import quantity
from madbench.cli.trained_models import ModelArgument, TrainedModel
from madbench.errors import ConfigError


def export(
    run: ModelArgument,
    output: output_option("File to write.", show_default="LABEL-ID.safetensors") = None,
    force: option(bool, "Replace the file if it is there.", "--force") = False,
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Write the weights of a language model as safetensors, with its job in the file's metadata.

    A checkpoint of an unfinished run is exported too. In Python,
    madbench.training.checkpoints.load_model reads the file into a model.

    [bold]Examples[/bold]

      madbench lm export G-cg-q-12o
      madbench lm export 3f9a --output hyperglu.safetensors
    """
    from madbench.training.checkpoints import save_weights

    trained = TrainedModel(run, results)
    output = output or Path(f"{trained.job.label}-{trained.job.id[:8]}.safetensors")
    if output.exists() and not force:
        raise ConfigError(f"{output}: already exists; give --force to replace it, or another --output")
    save_weights(output, trained.model, trained.job)
    print(f"{output}: {quantity(sum(p.numel() for p in trained.model.parameters()))} parameters of {trained.job.label}")
