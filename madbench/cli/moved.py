"""Former commands and options."""

MOVED = {
    "budget": "madbench explain --cost",
    "claim": "madbench new claim",
    "doctor": "madbench validate --machine",
    "power": "madbench findings --power",
    "principles": "madbench paper coefficients",
    "status": "madbench ls sweeps",
    "ls presets": "madbench ls profiles",
    "lm table": "madbench table -t language_model",
    "lm plot": "madbench plot loss",
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
"""Former options, and what does the same now."""
