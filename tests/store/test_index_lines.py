"""A line of the index gives back what was put into it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.jobs import Job, Record, TrainingConfig
from madbench.language_jobs import GPTConfig, LanguageJob, LanguageTraining
from madbench.store import index as run_index

numbers = st.floats() | st.integers(-(2**60), 2**60)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
details = st.dictionaries(
    st.text(max_size=5), values | st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=3), values)
)
jobs = st.builds(
    Job,
    st.sampled_from(["S", "language_model", "\ud800"]),
    st.just("compression"),
    st.dictionaries(st.text(max_size=3), st.sampled_from([1, 1.0, True, 0, 0.0, False, 2])),
    training=st.builds(TrainingConfig, learning_rate=st.sampled_from([1e-3, 1, 1e-300]), epochs=st.integers(1, 3)),
    seed=st.integers(0, 2**70),
)
language_jobs = st.builds(
    LanguageJob,
    st.just("S"),
    st.text("0a", max_size=3),
    st.just(64),
    st.builds(GPTConfig, st.sampled_from([16, 32]), seq_len=st.just(16)),
    st.builds(LanguageTraining, steps=st.just(60), tokens_per_step=st.just(64), eval_every=st.just(10)),
)
entries = st.lists(
    st.builds(
        run_index.Entry,
        st.text(max_size=5),
        jobs | language_jobs,
        st.builds(
            Record, st.sampled_from(["finished", "failed"]), st.dictionaries(st.text(), numbers), st.just([]), details
        ),
    ),
    max_size=5,
).map(lambda entries: {entry.job.id: entry for entry in entries})


@settings(max_examples=30, deadline=None)
@given(entries=entries)
def test_entries_come_back_as_they_were_to_the_type(entries):
    again, _ = run_index.decode(run_index.encode(entries))
    assert repr(again) == repr(entries)
    assert [entry.job.id for entry in again.values()] == [entry.job.id for entry in entries.values()]


@settings(max_examples=15, deadline=None)
@given(entries=entries)
def test_it_does_not_matter_how_the_entries_are_spread_over_lines(entries):
    lines = b"".join(run_index.encode({name: entry}) for name, entry in entries.items())
    assert repr(run_index.decode(lines)) == repr(run_index.Index(entries, len(entries)))
