"""``python cli.py ...`` is ``madbench ...`` without installing."""

if __name__ == "__main__":
    try:
        from madbench.__main__ import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except ModuleNotFoundError as error:
        if (error.name or "madbench").startswith("madbench"):
            raise
        how = "pip install -c constraints.txt . installs all that madbench needs"
        raise SystemExit(f"{error.name} is not installed; {how}") from None
