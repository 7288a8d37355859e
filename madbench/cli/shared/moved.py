"""Commands and options of earlier versions, for messages that name their replacements."""

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
"""Commands of earlier versions, and the commands that do the same now."""
MOVED_OPTIONS = {
    "--address": "--on ray:ADDRESS",
    "--cpus-per-job": "cpus_per_job in the file of --on",
    "--executor": "--on",
    "--gpus-per-job": "gpus_per_job in the file of --on",
    "--import": "madbench import FILE",
    "--json": "-f json",
    "--label": "--tex-label",
    "--memory": "memory_gb in the file of --on",
    "--name": "--rename",
    "--partition": "partition in the file of --on",
    "--preset": "--profile",
    "--register": "madbench register FILE.yaml",
    "--sbatch": "sbatch in the file of --on",
    "--shared": "shared in the file of --on",
    "--wall-time": "minutes in the file of --on",
}
"""Options of earlier versions, and the options, commands or keys of files that do the same now."""
_READING = ("attribute", "audit", "compare", "findings", "plot", "report", "table")
OTHER_OPTIONS = {
    **{(verb, "--seeds"): "it shows all stored seeds" for verb in _READING},
    **{
        (verb, "--set"): "settings are words, such as training.epochs=20"
        for verb in (*_READING, "run", "sweep", "train")
    },
    ("again", "--results"): "--keep FOLDER keeps the new runs",
    ("again", "--pairs"): "python studies/equal_code.py, in a clone, records the code that gives equal numbers",
}
"""Advice for options that most commands have, but this command does not, by command and option."""
SYNONYMS = {"--margin": "--within", "--equivalence": "--within"}
"""Options of other programs, and the options of madbench that do the same."""
