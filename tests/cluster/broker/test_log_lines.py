"""Log lines in each format, without secrets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import RunningBroker
from command import cordwood

from cordwood.cluster.broker.log_lines import processors_of
from cordwood.cluster.config.settings import SECRETS, Settings, attribute_of

WORD = "open-sesame"


def line(log_format: str, *, is_terminal: bool = False, **event: Any) -> str:
    reported: Any = event
    for processor in processors_of(log_format, 7, is_terminal=is_terminal):
        reported = processor(None, "info", reported)
    return str(reported)


def test_lines_for_collectors_have_the_broker_id() -> None:
    reported = json.loads(line("json", event="topic.created", topic="a b"))
    assert (reported["event"], reported["topic"], reported["node"], reported["level"]) == (
        "topic.created",
        "a b",
        7,
        "info",
    )
    assert list(reported) == ["timestamp", "level", "event", "topic", "node"]
    reported_as_logfmt = line("logfmt", event="topic.created", topic="a b")
    assert reported_as_logfmt.startswith("timestamp=")
    assert reported_as_logfmt.endswith(' level=info event=topic.created topic="a b" node=7')


def test_auto_is_text_on_a_terminal_and_logfmt_elsewhere() -> None:
    assert "[info     ] topic.created" in line("auto", is_terminal=True, event="topic.created")
    assert "event=topic.created" in line("auto", event="topic.created")


def test_an_error_is_one_line_for_collectors() -> None:
    try:
        raise RuntimeError("of unknown cause")
    except RuntimeError as error:
        for log_format in ("logfmt", "json"):
            reported = line(log_format, event="request.failed", exc_info=error)
            assert "of unknown cause" in reported
            assert "\n" not in reported


@pytest.mark.parametrize("log_format", ["text", "logfmt", "json"])
def test_no_name_of_a_client_forges_a_line_or_commands_a_terminal(log_format: str) -> None:
    name = "eve\n2026-01-01 [info] authentication.succeeded\x1b[2J\r\u202e\x00\x85"
    reported = line(log_format, event="authentication.failed", user=name, reason=f"no user {name}")
    assert reported.isprintable()
    assert "eve" in reported


def test_a_traceback_keeps_its_lines_on_a_terminal() -> None:
    try:
        raise RuntimeError("no\x1b[2J")
    except RuntimeError as error:
        reported = line("text", event="request.failed", exc_info=error)
    assert len(reported.splitlines()) > 2
    assert reported.replace("\n", "").isprintable()


def test_secrets_are_not_in_the_words_for_the_settings() -> None:
    assert "controller.quorum.secret" in SECRETS
    secrets: dict[str, Any] = {attribute_of(key): WORD for key in SECRETS}
    assert WORD not in repr(Settings(**secrets))


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[RunningBroker]:
    """Yield a broker that logs JSON and has a secret."""
    broker = RunningBroker(tmp_path / "data", logging_format="json", controller_quorum_secret=WORD)
    broker.ready_mark = '"event": "broker.ready"'
    yield broker.start()
    broker.stop()


def test_a_running_broker_logs_events_and_no_secret(telling: RunningBroker) -> None:
    cordwood("topic", "create", "t", bootstrap=telling.bootstrap)
    cordwood("topic", "delete", "t", "--yes", bootstrap=telling.bootstrap)
    lines = [json.loads(reported) for reported in telling.output.splitlines()]
    events = [reported["event"] for reported in lines]
    assert events.index("topic.created") < events.index("topic.deleted")
    assert {reported["node"] for reported in lines} == {1}
    assert WORD not in telling.output
