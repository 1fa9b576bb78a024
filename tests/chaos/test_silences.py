"""Figures of rounds that the clients' answers show: silences of partitions, and the p99 of a recovery."""

import numpy as np
import pytest

from cordwood.chaos.live.flood.waits import MachineTime, Wait
from cordwood.chaos.live.rounds import Moments, longest_silences_s, p99_ratios, silences
from cordwood.chaos.report.series import Answers

BEGAN_S = 100.0


def answers(*rows: tuple[int, float], ack_s: float = 0.01, refused: tuple[int, ...] = ()) -> Answers:
    """Return answers of (partition, time). `refused` are the rows that are no acknowledgement."""
    at_s = np.array([time_s for _, time_s in rows])
    return Answers(
        partition=np.array([partition for partition, _ in rows]),
        sent_s=at_s - ack_s,
        answered_s=at_s,
        is_acknowledged=np.array([row not in refused for row in range(len(rows))]),
    )


def test_a_partition_is_silent_between_acknowledgements_by_any_producer() -> None:
    given = answers((0, 3.0), (0, 1.0), (1, 1.5), (0, 1.05), (1, 1.7))
    assert list(silences(given, 1.0, 3.0)) == [
        [Wait("partition 0", 1.05, 3.0)],
        [Wait("partition 1", 1.0, 1.5), Wait("partition 1", 1.5, 1.7), Wait("partition 1", 1.7, 3.0)],
    ]


def test_a_refusal_ends_no_silence() -> None:
    assert list(silences(answers((0, 1.5), refused=(0,)), 1.0, 2.0)) == [[Wait("partition 0", 1.0, 2.0)]]


def test_the_longest_of_short_silences_is_measured_too() -> None:
    assert list(silences(answers((0, 1.03), (0, 1.05)), 1.0, 1.05)) == [[Wait("partition 0", 1.0, 1.03)]]


def test_what_the_machine_withheld_counts_for_nothing() -> None:
    given = answers((0, 1.9), (1, 1.4), (1, 1.9))
    machine = MachineTime()
    assert list(longest_silences_s(given, BEGAN_S, 1.0, 1.9, machine)) == pytest.approx([0.9, 0.5])
    for time_s, starved_s in ((1.0, 0.0), (2.0, 0.6)):
        machine.add(BEGAN_S + time_s, (starved_s,), 0.0, 0.0)
    assert list(longest_silences_s(given, BEGAN_S, 1.0, 1.9, machine)) == pytest.approx([0.3, 0.0])


def test_a_recovery_is_compared_with_the_calm_before_its_fault() -> None:
    calm, during = answers((0, 1.0), (0, 2.0)), answers((0, 5.0), ack_s=0.03)
    both = Answers(*(np.concatenate(columns) for columns in zip(_columns(calm), _columns(during), strict=True)))
    moments = [Moments(0.5, 2.5, 4.0, 6.0), Moments(7.0, 8.0, 9.0, 10.0)]
    assert list(p99_ratios(both, moments)) == pytest.approx([3.0])


def _columns(given: Answers) -> tuple["np.ndarray[tuple[int], np.dtype[np.generic]]", ...]:
    return given.partition, given.sent_s, given.answered_s, given.is_acknowledged
