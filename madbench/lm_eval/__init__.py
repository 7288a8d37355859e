"""Language models of stored runs in lm-evaluation-harness (Gao et al. 2024).

``madbench lm evaluate RUN --tasks arc_easy`` evaluates a model and stores the results with the run. The harness's own
command line also accepts these models, as the model type ``madbench``, with all of its options::

    python -m madbench.lm_eval --model madbench --model_args run=G-cg-q-12o --tasks arc_easy

In Python, importing this package registers the model type for ``lm_eval.simple_evaluate(model="madbench",
model_args={"run": ...})``.
"""

from __future__ import annotations

from madbench.errors import require

NEEDED = "a task of lm-evaluation-harness"
MODEL_TYPE = "madbench"
MODEL = "madbench.cli.lm.harness_model:StoredModel"

require("lm_eval.api.registry", NEEDED, "lm-eval").model_registry.register(MODEL_TYPE, target=MODEL)
