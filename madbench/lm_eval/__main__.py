"""The command line of lm-evaluation-harness, with the model type ``madbench``."""

from __future__ import annotations

import argparse
import sys

from lm_eval.__main__ import cli_evaluate

from madbench.errors import MadbenchError
from madbench.training.devices import resolve_device

OTHER_COMMANDS = {"ls", "validate"}


def main() -> None:
    """Run the command line. Errors of madbench are printed as one sentence.

    If neither ``--device`` nor a file of ``--config`` names a device, a device of this machine is chosen. The harness
    itself would request ``cuda:0``.
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
