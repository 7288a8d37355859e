"""The command line of lm-evaluation-harness, with the model type ``madbench``."""

from __future__ import annotations

from lm_eval.__main__ import cli_evaluate

if __name__ == "__main__":
    cli_evaluate()
