"""The command line of lm-evaluation-harness, with the model type ``madbench``."""

from __future__ import annotations

import argparse
import sys

from lm_eval.__main__ import cli_evaluate

from madbench.errors import MadbenchError
from madbench.training.devices import resolve_device

OTHER_COMMANDS = {"ls", "validate"}


def main() -> None:
    """Run the command line of the harness. Errors of madbench are printed as one sentence.

    If the user gives neither ``--device`` nor ``--config``, an available device of this machine is used. The harness
    itself would use ``cuda:0``.
    """
    parser = argparse.ArgumentParser(add_help=False)
    for names in (("--device",), ("--config", "-C")):
        parser.add_argument(*names)
    known, _ = parser.parse_known_args(sys.argv[1:])
    try:
        if len(sys.argv) > 2 and sys.argv[1] not in OTHER_COMMANDS and known.device is None and known.config is None:
            sys.argv += ["--device", resolve_device("auto")]
        cli_evaluate()
    except MadbenchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
