"""Log rate limit: a flood of one event leaves a bounded number of lines, and the next line has the number dropped."""

from collections.abc import MutableMapping
from typing import Any

import pytest
import structlog

from cordwood.cluster.broker.log_lines import INTERVAL_S, LINES_MAX, LogLimit


class LogStory:
    """Log events at given times, and the lines that pass the limit."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.lines: list[MutableMapping[str, Any]] = []
        self._limit = LogLimit(lambda: self.now_s)

    def happen(self, event: str, times: int = 1, method: str = "warning") -> None:
        for _ in range(times):
            try:
                self.lines.append(self._limit(None, method, {"event": event}))
            except structlog.DropEvent:
                continue


@pytest.fixture
def log() -> LogStory:
    return LogStory()


def test_a_flood_leaves_so_many_lines_an_interval(log: LogStory) -> None:
    log.happen("connection.closed", 5 * LINES_MAX)
    assert len(log.lines) == LINES_MAX
    log.now_s += INTERVAL_S
    log.happen("connection.closed", 5 * LINES_MAX)
    assert len(log.lines) == 2 * LINES_MAX
    assert log.lines[LINES_MAX] == {"event": "connection.closed", "left_out": 4 * LINES_MAX}
    assert log.lines[LINES_MAX + 1] == {"event": "connection.closed"}


def test_other_events_have_their_lines(log: LogStory) -> None:
    log.happen("connection.closed", 5 * LINES_MAX)
    log.happen("leader.elected", 3)
    assert [line["event"] for line in log.lines[LINES_MAX:]] == ["leader.elected"] * 3


def test_what_ends_the_broker_is_always_logged(log: LogStory) -> None:
    log.happen("broker.failed", 2 * LINES_MAX, "critical")
    assert len(log.lines) == 2 * LINES_MAX


def test_few_lines_are_left_alone(log: LogStory) -> None:
    for _ in range(10):
        log.happen("connection.closed", LINES_MAX)
        log.now_s += INTERVAL_S
    assert log.lines == [{"event": "connection.closed"}] * (10 * LINES_MAX)
