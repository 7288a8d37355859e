"""Former commands and options. The changelog promises that each names its replacement."""

MOVED = {
    "budget": "madbench explain --cost",
    "claim": "madbench new claim",
    "doctor": "madbench validate --machine",
    "power": "madbench findings --power",
    "status": "madbench ls sweeps",
}
"""Former commands, and the commands that do the same now."""
MOVED_OPTIONS = {
    "--import": "madbench import FILE",
    "--json": "-f json",
    "--label": "--tex-label",
    "--name": "--rename",
    "--preset": "--profile",
    "--register": "madbench register FILE.yaml",
}
"""Former options, and the options or commands that do the same now."""
OTHER_OPTIONS = {("again", "--results"): "--keep FOLDER keeps the new runs"}
"""Options of most commands that a command does not have, and its option for the purpose, by command and option."""
