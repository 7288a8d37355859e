"""The types of the details in a run's record. At run time they are plain dicts, as JSON and checkpoints have them."""

from __future__ import annotations

from typing import Any, TypedDict


class TrainingPlace(TypedDict):
    """The version of torch and the device of a part of a run, from one step on."""

    torch: str
    device: str
    from_step: int
    """The step after which this part begins: 0 for the first part."""


class TrainingGroup(TypedDict):
    """The jobs that trained together in common steps, from one step on."""

    from_step: int
    """The step after which the jobs trained together."""
    ids: list[str]
    """The ids of the jobs, in order."""


class GitState(TypedDict):
    """The checkout from which madbench was imported."""

    commit: str
    dirty: bool
    """True if files differed from the commit."""


class ComputeDetails(TypedDict):
    """The steps and the training FLOPs of a run whose budget chooses the number of steps."""

    steps: int
    steps_of_softmax: int
    """The number of steps of softmax attention in the same profile."""
    training_flops: float
    of_softmax: float
    """The training FLOPs divided by those of softmax attention."""


class OptimizerDetails(TypedDict):
    """The names of the parameters that each optimizer trains."""

    muon: list[str]
    adamw: list[str]


class SplitDetails(TypedDict, total=False):
    """The size of a split of a corpus."""

    tokens: int | None
    bytes: int | None
    documents: int | None
    sha256: str


class SourcesDetails(TypedDict):
    """The files from which a corpus was prepared."""

    count: int
    sha256: str
    """A digest of the names and digests of the files."""
    skipped: int
    """The number of rows without a text, which were left out."""


class CorpusDetails(TypedDict, total=False):
    """The corpus of a run."""

    name: str
    digest: str
    folder: str
    """The folder at the time of training. Archives leave it out."""
    tokenizer: str
    dtype: str
    vocab_size: int
    splits: dict[str, SplitDetails]
    split_rule: str
    sources: SourcesDetails


class EvaluationDetails(TypedDict, total=False):
    """The windows on which a language model was evaluated in training."""

    windows: int
    seq_len: int
    train: str
    """The way in which windows of the training split are chosen, as text."""
    val: str
    val_stride: float
    """The mean distance of windows of the validation split, in tokens."""
    val_bytes: int | None
    """The UTF-8 bytes of the targets of all validation windows. None if they are not known."""


class Details(TypedDict, total=False):
    """The details of a record: how the numbers of a run were made. Each key may be missing.

    The types are those that madbench writes. The store checks those that its readers rely on
    (:mod:`madbench.store.checks`). There, a count may be a float, and a number may be NaN. A suite may add further
    details (:meth:`madbench.suites.trial.Trial.details`).
    """

    model_parameters: int
    mixer_parameters: float
    """Mean over the blocks."""
    budget: float
    """Mean over the blocks of the quantity that the budget allows."""
    budget_ratio: float
    """The quantity that the budget limits, summed over the blocks, divided by the sum of their budgets."""
    ranks: dict[str, int] | list[dict[str, int]]
    """The ranks by name, or a list with the ranks of each block if they differ."""
    flops_per_token: float
    """Training FLOPs per token, forward and backward."""
    compute: ComputeDetails
    optimizer: OptimizerDetails
    """Missing if AdamW trains all parameters."""
    seeds: dict[str, int]
    """The seed of each random stream."""
    path: str
    """The computation paths of the mixers."""
    kernel_problem: str
    compiled: bool
    replayed: bool
    cuda_graph: bool
    products: str
    """The library of matrix products of a run on a CPU."""
    device: str
    processor: str
    """The kind of the CPU of a run on a CPU (:func:`madbench.training.devices.cpu_kind`)."""
    threads: int
    world_size: int
    equal_shares: bool
    micro_batch: int
    steps: int
    seconds: float
    steps_per_second: float
    tokens_per_second: float
    """Median over the rows of the curve."""
    ended: str
    """The time at which the run ended, as ISO 8601."""
    places: list[TrainingPlace]
    """Missing if the whole run had one version of torch and one device."""
    group: int
    """The number of jobs that shared the first step. Missing if the run shared none."""
    group_jobs: list[TrainingGroup]
    versions: dict[str, str]
    git: GitState | None
    """None if madbench was not imported from a checkout."""
    code: dict[str, Any]
    """The listings of the code outside of madbench, by role (:mod:`madbench.identity.listing`). A record that is read
    can have anything here."""
    package_code: dict[str, str]
    """The digests of madbench's own code, by part. A record that is read can have anything here."""
    corpus: CorpusDetails
    evaluation: EvaluationDetails
