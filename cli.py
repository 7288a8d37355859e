"""``python cli.py ...`` is ``madbench ...`` without installing."""

from madbench.cli import main

if __name__ == "__main__":
    main()
