"""The program ``madbench``, also as ``python -m madbench``."""

import sys


def main() -> None:
    """Run the command line.

    Ctrl-C ends the program without a traceback, even during the import of madbench. In a checkout that is not
    installed, the message about a missing package names the command that installs it.
    """
    try:
        from madbench.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        from madbench.extras import project

        if (error.name or "madbench").startswith("madbench") or project() is None:
            raise
        how = "pip install -c constraints.txt . installs all that madbench needs"
        sys.exit(f"{error.name} is not installed; {how}")


if __name__ == "__main__":
    main()
