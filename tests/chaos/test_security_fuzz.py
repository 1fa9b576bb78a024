"""The fuzzing of a closed broker: no way in, and detection of one."""

import random
from pathlib import Path

import pytest

from cordwood.chaos.live.handshake_flood import p99
from cordwood.chaos.live.intruders.changes import changed_token
from cordwood.chaos.live.intruders.connection import frames_in
from cordwood.chaos.live.intruders.keys import sign
from cordwood.chaos.live.intruders.stage import READABLE, ClosedStage, signs_of_failure
from cordwood.chaos.live.security_fuzz import attempted, fuzz

SECONDS = 2.0
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
"""RS256, sub=alice, and a signature that is none."""


def test_no_intruder_gets_into_a_closed_broker(tmp_path: Path) -> None:
    with ClosedStage(tmp_path / "broker") as stage:
        verdict = fuzz(stage, seed=1, seconds=SECONDS, processes=1)
    assert not verdict.complaints
    assert verdict.outcomes.total() > 0
    assert any(outcome.startswith("SCRAM") for outcome in verdict.outcomes)


def test_an_open_door_is_noticed(tmp_path: Path) -> None:
    doors = "CLIENTS:SASL_SSL,READABLE:PLAINTEXT,BROKERS:SSL"
    opened = {"listener.security.protocol.map": doors, "sasl.plain.unencrypted.listeners": ""}
    with ClosedStage(tmp_path / "broker", {**opened, "super.users": "User:admin;User:ANONYMOUS"}) as stage:
        assert READABLE in stage.target.ports
        _, complaints = attempted(stage.target, [f"1/0/{number}" for number in range(24)])
        _, changes = stage.verdict(1000.0)
    assert any("not authenticated" in complaint for complaint in complaints)
    assert any("changed the cluster" in change for change in changes)


@pytest.mark.parametrize("seed", range(200))
def test_a_changed_token_is_not_the_valid_one(seed: int) -> None:
    made = [changed_token(random.Random(seed), TOKEN, "PEM", sign) for _ in range(2)]
    assert made[0].rstrip("=") != TOKEN
    assert len(made[0].split(".")[0]) == len(made[1].split(".")[0])


def test_frames_end_with_the_first_wrong_length() -> None:
    assert frames_in(b"\0\0\0\x01a\0\0\0\0\xff\xff\xff\xffb") == [b"a", b""]
    assert frames_in(b"\0\0\0\x09a") == []


def test_failures_in_a_log_are_complaints() -> None:
    log = "event=authentication.failed\nevent=authentication.broken client=x\n"
    assert signs_of_failure(log) == ["in the log: event=authentication.broken client=x"]


def test_the_99th_percentile() -> None:
    assert p99([float(number) for number in range(1, 101)]) == 99.0
    assert p99([]) == 0.0
