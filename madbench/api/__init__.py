"""The Python functions of madbench.

``run``, ``sweep`` and ``run_language_model`` train. They run jobs in worker processes. A worker imports the user's
script only if it trains a class that the script defines. Such a script must call these functions under
``if __name__ == "__main__":``. While they train, a terminal shows a progress bar and a notebook the running jobs.
Without either, one line per ended job is printed to stderr. ``plan`` says what ``run`` would train, ``verify`` checks
mixers, and ``open`` opens a results folder.

The other functions show stored runs. They return a figure, or a frame that a notebook shows as a table. Each has the
name of a verb of the command line. All choose the stored runs by the following arguments, which are like the options of
these verbs:

- labels: labels or sets of labels (``"G-cg-q-12o"``, ``["{S,R}-c", "@table1"]``). By default all stored labels.
- overrides, fidelity, results: as in :func:`run`.
- profile: the profile of the runs. By default the default profile, or the only profile with stored runs.
- tasks: tasks or suites. By default the six tasks of MAD, and the language model if runs of one protocol are stored.
- budget: the budget of the runs, by default ``strict``. None for any budget, if the suite trains on a corpus.
- protocol, corpus: the protocol and the corpus of the language model's runs, needed if several are stored.
- rename: display names of labels in figures and frames, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``. In a frame, every
  other label is canonical.

These functions raise ``StoreError`` if the store has no run of the requested protocol. They warn (``UserWarning``) of
damaged runs and of labels that are left out.
"""

from madbench.api.checks import verify
from madbench.api.stored import StoredResults, attribute, audit, compare, findings, open, plot, table
from madbench.api.training import plan, run, run_language_model, sweep

__all__ = [
    "StoredResults", "attribute", "audit", "compare", "findings", "open", "plan", "plot", "run", "run_language_model",
    "sweep", "table", "verify",
]  # fmt: skip
