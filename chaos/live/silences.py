"""Silences of partitions: periods without an acknowledgement while producers send all the time."""

from collections.abc import Iterable

from cordwood.chaos.live.flood.waits import NOTED_S, Wait
from cordwood.chaos.live.rows import Answered


def silences(answers: Iterable[Answered]) -> list[Wait]:
    """Return the periods between acknowledgements of each partition, by any producer, that exceed NOTED_S."""
    last_s: dict[int, float] = {}
    found: list[Wait] = []
    for answer in sorted((each for each in answers if not each.error), key=lambda each: each.answered_at):
        began_s = last_s.get(answer.partition, answer.answered_at)
        if answer.answered_at - began_s > NOTED_S:
            found.append(Wait(f"partition {answer.partition}", began_s, answer.answered_at))
        last_s[answer.partition] = answer.answered_at
    return found
