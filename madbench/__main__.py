"""The program ``madbench``, also as ``python -m madbench``."""

import sys


def main() -> None:
    """Runs the command line. Ctrl-C ends the program without a traceback, even during the import of madbench."""
    try:
        from madbench.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
