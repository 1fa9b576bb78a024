"""Silences of partitions: gaps between acknowledgements, less the time that the machine withheld."""

from cordwood.chaos.live.flood.waits import MachineTime, Wait
from cordwood.chaos.live.report import RoundsReport
from cordwood.chaos.live.rolling_restart import judge_silences
from cordwood.chaos.live.rows import Answered
from cordwood.chaos.live.silences import silences

REFUSED = 6


def answered(partition: int, at_s: float, error: int = 0) -> Answered:
    return Answered(partition, 0, 0, error, at_s - 0.01, at_s)


def test_a_partition_is_silent_between_acknowledgements_by_any_producer() -> None:
    answers = [answered(0, 3.0), answered(0, 1.0), answered(1, 1.5), answered(0, 1.05), answered(1, 1.7)]
    assert silences(answers) == [Wait("partition 1", 1.5, 1.7), Wait("partition 0", 1.05, 3.0)]


def test_a_refusal_ends_no_silence() -> None:
    assert silences([answered(0, 1.0), answered(0, 1.5, REFUSED), answered(0, 2.0)]) == [Wait("partition 0", 1.0, 2.0)]


def test_a_long_silence_is_an_anomaly_but_for_what_the_machine_withheld() -> None:
    found = [Wait("partition 0", 1.0, 1.9), Wait("partition 1", 1.0, 1.4)]
    blamed, excused = RoundsReport("blamed"), RoundsReport("excused")
    judge_silences(blamed, found, MachineTime())
    assert [anomaly.name for anomaly in blamed.anomalies] == ["silence"]
    assert [round(seconds, 1) for seconds in blamed.times_s["longest_silence"]] == [0.9, 0.4]
    machine = MachineTime()
    for time_s, starved_s in ((1.0, 0.0), (2.0, 0.6)):
        machine.add(time_s, (starved_s,), 0.0, 0.0)
    judge_silences(excused, found, machine)
    assert excused.anomalies == []
