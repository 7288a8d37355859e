"""``python cli.py ...`` is ``madbench ...`` without installing."""

from madbench.__main__ import main

if __name__ == "__main__":
    main()
