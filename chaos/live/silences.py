"""Silences of partitions: periods without an acknowledgement while producers send all the time."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.live.flood.waits import NOTED_S, MachineTime, Wait
from cordwood.chaos.report.series import Answers


def silences(answers: Answers, start_s: float, end_s: float) -> Iterator[list[Wait]]:
    """Yield each partition's waits between acknowledgements, by any producer, from `start_s` to `end_s`.

    The longest is always there; the others are left out where they are short.
    """
    is_known = answers.is_acknowledged & (answers.answered_s >= start_s) & (answers.answered_s <= end_s)
    for partition in np.unique(answers.partition).tolist():
        moments = np.sort(answers.answered_s[is_known & (answers.partition == partition)])
        moments = np.concatenate([[start_s], moments, [end_s]])
        waits_s = np.diff(moments)
        noted = np.flatnonzero(waits_s >= min(NOTED_S, waits_s.max()))
        yield [Wait(f"partition {partition}", float(moments[at]), float(moments[at + 1])) for at in noted]


def longest_silences_s(
    answers: Answers, began_s: float, start_s: float, end_s: float, machine: MachineTime
) -> Iterator[float]:
    """Yield each partition's longest silence, less the time that the machine withheld.

    `began_s` is the start of the run on the monotonic clock; the other times count from it.
    """
    for waits in silences(answers, start_s, end_s):
        moved = (Wait(wait.kind, wait.began_s + began_s, wait.ended_s + began_s) for wait in waits)
        yield max(wait.seconds - machine.share_of(wait) for wait in moved)
