"""The checks of a history against a model log: no false alarm, and detection of every lost or changed record."""

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest
from healthy_history import healthy
from hypothesis import assume, given
from hypothesis import strategies as st
from model_log import ModelLog

from cordwood.chaos.checks import check, count_by_kind
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Column, History, Outcome, Table, value_of

histories = st.builds(lambda seed, steps: ModelLog(random.Random(seed)).run(steps), st.integers(0), st.integers(0, 300))


@given(histories)
def test_promises_that_were_kept_raise_no_alarm(history: History) -> None:
    assert check(history) == []


def test_the_model_does_what_the_alarms_are_about() -> None:
    history = ModelLog(random.Random(1)).run(2000)
    evidence = Evidence(history)
    assert set(history.sends.outcome) == set(Outcome)
    assert (history.sends.offset[history.sends.outcome == Outcome.OK] == -1).any()
    assert (np.diff(history.polls.offset[history.polls.consumer == 1]) < 0).any()
    assert history.watermarks.log_start.max() > 0
    assert (history.replicas.value < 0).any()
    assert set(history.commits.is_read) == {0, 1}
    assert len(history.assignments) > 50
    assert len(evidence.irregular_polls[0]) > 20
    assert np.count_nonzero(evidence.is_acknowledged) > 100
    assert (evidence.is_polled & (history.sends.outcome == Outcome.INFO)).any()


def without(table: Table, is_gone: Column) -> Table:
    return type(table)(*(getattr(table, field.name)[~is_gone] for field in dataclasses.fields(table)))


def steal_from_reads(history: History, partition: int, offset: int, _value: int) -> History:
    polls = history.polls
    is_stolen = (polls.partition == partition) & (polls.offset == offset)
    return dataclasses.replace(history, polls=without(polls, is_stolen))


def steal_from_one_replica(history: History, _partition: int, _offset: int, value: int) -> History:
    replicas = history.replicas
    return dataclasses.replace(history, replicas=without(replicas, (replicas.value == value) & (replicas.broker == 2)))


def change_one_read(history: History, partition: int, offset: int, _value: int) -> History:
    polls = history.polls
    [row, *_] = np.flatnonzero((polls.partition == partition) & (polls.offset == offset))
    values = polls.value.copy()
    values[row] = value_of(9, 9)
    return dataclasses.replace(history, polls=dataclasses.replace(polls, value=values))


@pytest.mark.parametrize(
    ("harm", "kinds"),
    [
        (steal_from_reads, {"lost-write", "unseen"}),
        (steal_from_one_replica, {"lost-write"}),
        (change_one_read, {"unsent-read"}),
    ],
)
@given(histories, st.randoms(use_true_random=False))
def test_harm_to_any_acknowledged_record_is_noticed(
    harm: Callable[[History, int, int, int], History], kinds: set[str], history: History, rng: random.Random
) -> None:
    sends = history.sends
    start = np.zeros(len(sends), np.int64)
    for partition in range(1 + int(sends.partition.max(initial=-1))):
        seen = history.watermarks.log_start[history.watermarks.partition == partition]
        start[sends.partition == partition] = seen.max(initial=0)
    safe = np.flatnonzero((sends.outcome == Outcome.OK) & (sends.offset >= start) & (sends.offset >= 0))
    assume(len(safe))
    victim = rng.choice(safe.tolist())
    harmed = harm(history, int(sends.partition[victim]), int(sends.offset[victim]), int(sends.value[victim]))
    assert kinds & set(count_by_kind(check(harmed)))


def test_a_large_history_to_measure_with_is_healthy() -> None:
    history = healthy(sends=20_000, partitions=3, producers=4, consumers=2, brokers=3)
    assert (len(history.sends), len(history.polls), len(history.replicas)) == (20_000, 40_000, 60_000)
    assert check(history) == []
