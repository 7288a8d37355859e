"""``madbench lm export``: write a language model to one file, or to a folder for Hugging Face's transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from madbench.cli.shared import options
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.printing import quantity
from madbench.cli.shared.trained_models import ModelArgument, TrainedModel, TrustOption
from madbench.config.options import option
from madbench.errors import ConfigError, no_effect, require
from madbench.files import output_file
from madbench.labels.names import display_name, file_name
from madbench.text.options import CorpusOptions


@dataclass(frozen=True)
class ExportedCorpus(CorpusOptions):
    """The options of the corpus whose tokenizer is exported with ``--format hf``."""

    corpus: Annotated[
        Path | None, option("With --format hf: folder of the corpus with the tokenizer, if it was moved.")
    ] = None


def export(
    run: ModelArgument,
    output: Annotated[
        Path | None, output_option("File or folder to write.", show_default="LABEL-ID, with .safetensors for a file")
    ] = None,
    format: Annotated[
        Literal["safetensors", "hf"],
        option(
            "safetensors: one file with the weights and the job. hf: a folder for transformers, with the tokenizer.",
        ),
    ] = "safetensors",
    force: Annotated[bool, option("Replace an existing file.", "--force")] = False,
    *,
    data: ExportedCorpus,
    trust: TrustOption = None,
    results: options.ResultsOption = options.RESULTS,
) -> None:
    """Write the weights of a language model for other programs.

    The metadata of the file have the job of the model. In Python,
    madbench.training.checkpoints.load_model makes a model from it. A checkpoint
    of an unfinished run can be exported too.

    --format hf needs the extra transformers. After import madbench.huggingface,
    AutoModelForCausalLM.from_pretrained and AutoTokenizer.from_pretrained open
    the folder: for generate, Trainer, and what is built on them.

    [bold]Examples[/bold]

      madbench lm export G-cg-q-12o
      madbench lm export 3f9a --output hyperglu.safetensors
      madbench lm export G-cg-q-12o --format hf --output hyperglu
    """
    for name, value in vars(data).items():
        if value is not None and format != "hf":
            raise no_effect(f"--{name} {value}", "without --format hf")
    trained = TrainedModel(run, results, trust=trust)
    ending = ".safetensors" if format == "safetensors" else ""
    output = output or Path(f"{file_name(trained.job.label)}-{trained.job.id[:8]}{ending}")
    if output.exists() and (format == "hf" or not force):
        advice = "delete it, or give" if format == "hf" else "give --force to replace it, or"
        raise ConfigError(f"{output}: already exists; {advice} another --output")
    if format == "hf":
        require("transformers", "--format hf", "transformers")
        from madbench.huggingface.export import export as write

        record = trained.store.read(trained.job.id).record if trained.store else None
        write(output, trained.model, trained.job, trained.corpus(data).tokenizer(), record)
    else:
        from madbench.training.checkpoints import save_weights

        save_weights(output_file(output), trained.model, trained.job)
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    print(f"{output}: {quantity(parameters)} parameters of {display_name(trained.job.label)}")
