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
