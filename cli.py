"""``python cli.py ...`` is ``madbench ...`` without installing."""

if __name__ == "__main__":
    try:
        from madbench.cli import main

        main()
    except ModuleNotFoundError as error:
        if (error.name or "madbench").startswith("madbench"):
            raise
        how = "pip install -c constraints.txt . installs all that madbench needs"
        raise SystemExit(f"{error.name} is not installed; {how}") from None
