"""Brokers of a benchmark round: one in-sync replica on each, and no process or data left after the round."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from cordwood.bench.certificates import BenchCertificates
from cordwood.bench.generator import Generator, LoadFailed
from cordwood.bench.lines import SMALL, GeneratorMode, LoadLine
from cordwood.bench.rounds import run_rounds
from cordwood.bench.systems import CannotRun, Cordwood, SystemBroker, answers

LOAD = Generator("librdkafka from Python", (sys.executable, "-m", "cordwood.bench.load_in_python"))
# A load generator that fails every consume, and runs everything else.
BROKEN = """
import runpy, sys
if sys.argv[1] == "consume":
    sys.exit("the load is refused")
runpy.run_module("cordwood.bench.load_in_python", run_name="__main__", alter_sys=True)
"""
LINES = (
    LoadLine("a producer", GeneratorMode.PRODUCE, SMALL, records=3_000),
    LoadLine("a consumer", GeneratorMode.CONSUME, SMALL, records=3_000),
)
ENDED_S = 30.0
AT_ONCE = {"controlled.shutdown.max.wait.ms": "0"}
"""Brokers that all stop together wait in vain for other leaders."""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_topic_has_a_replica_in_sync_on_each_of_three_brokers(tmp_path: Path) -> None:
    with Cordwood(3, AT_ONCE).running(tmp_path / "round") as system:
        LOAD.create_topic(system.bootstrap, "t", partitions=2, replicas=3)
        partitions = AdminClient({"bootstrap.servers": system.bootstrap}).list_topics("t").topics["t"].partitions
        assert [sorted(each.isrs) for each in partitions.values()] == [[1, 2, 3], [1, 2, 3]]
        assert len(set(system.pids)) == 3


def test_clients_and_brokers_of_a_round_over_tls_speak_nothing_else(tmp_path: Path) -> None:
    system, certificates = Cordwood(3, AT_ONCE), BenchCertificates.make(tmp_path / "certificates")
    system.certificates = certificates
    load = replace(LOAD, ca=certificates.ca)
    with system.running(tmp_path / "round") as running:
        load.create_topic(running.bootstrap, SMALL, partitions=2, replicas=3)
        assert load.run(LINES[0], running.bootstrap, running.pids).failed == 0
        ports = [int(address.rpartition(":")[2]) for address in running.bootstrap.split(",")]
        assert all(answers(port, certificates.client()) and not answers(port) for port in ports)


def test_a_round_on_three_brokers_has_every_figure(tmp_path: Path) -> None:
    results = run_rounds([Cordwood(3, AT_ONCE)], LINES, LOAD, 1, tmp_path, 0, say=lambda _: None)
    assert set(results) == {
        "start to ready",
        "memory at rest",
        "a producer",
        "broker CPU, a producer",
        "a consumer",
        "broker CPU, a consumer",
        "memory after the load",
    }
    assert results["a producer"]["cordwood"].median > 0
    assert results["memory after the load"]["cordwood"].median > results["memory at rest"]["cordwood"].median > 0


def test_a_baseline_is_started_from_its_own_checkout(tmp_path: Path) -> None:
    script = tmp_path / ".venv" / "bin" / "python"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\ntouch {tmp_path}/started\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    baseline = Cordwood(baseline=tmp_path)
    baseline.prepare()
    (tmp_path / "started").unlink()
    with baseline.running(tmp_path / "round") as system:
        assert (tmp_path / "started").exists()
        assert is_running(system.pids[0])
    assert baseline.name == "baseline"


def test_a_baseline_without_an_environment_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"Run `make \.venv/\.ready` in that checkout"):
        Cordwood(baseline=tmp_path).prepare()


def test_a_line_that_fails_fails_its_round(tmp_path: Path) -> None:
    generator = Generator("broken", (sys.executable, "-c", BROKEN))
    failures: list[str] = []
    results = run_rounds([Cordwood()], LINES, generator, 1, tmp_path, 0, say=lambda _: None, on_failure=failures.append)
    assert results == {}
    assert failures == ["Round 1 failed (cordwood, brokers: 1): consume: the load is refused"]


def test_a_line_may_ask_for_brokers_with_a_session_timeout_of_its_own(tmp_path: Path) -> None:
    running = [SystemBroker(id_, 1, 2, tmp_path) for id_ in (1, 2, 3)]
    plain, long = Cordwood(3, AT_ONCE), Cordwood(3).with_sessions(9_000)
    assert "broker.session.timeout.ms=9000" in long.command(running[0], running)
    assert "broker.heartbeat.interval.ms=2250" in long.command(running[0], running)
    assert not any("session" in word for word in plain.command(running[0], running))
    failover = LoadLine("killed", GeneratorMode.FAILOVER, SMALL, rate=100, seconds=5, session_ms=2_000)
    results = run_rounds([plain], [failover], LOAD, 1, tmp_path, 0, say=lambda _: None)
    assert results["killed, longest time without an ack"]["cordwood"].median > 0


def test_every_round_begins_with_another_system(tmp_path: Path) -> None:
    systems = [Cordwood(), Cordwood(flush_policy="os")]
    reported: list[str] = []
    results = run_rounds(systems, LINES[:1], LOAD, 2, tmp_path, 0, say=reported.append)
    assert [each for each in reported if each.startswith("round")] == [
        "round 1 of 2: cordwood",
        "round 1 of 2: cordwood, os",
        "round 2 of 2: cordwood, os",
        "round 2 of 2: cordwood",
    ]
    assert {name: len(of.values) for name, of in results["a producer"].items()} == {"cordwood": 2, "cordwood, os": 2}


def test_no_broker_and_no_data_is_left_after_a_round_that_failed(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail_meanwhile() -> None:
        with Cordwood(brokers=3).running(tmp_path / "round") as system:
            pids.extend(pid for pid in system.pids if is_running(pid))
            raise LoadFailed("the load is refused")

    with pytest.raises(LoadFailed):
        fail_meanwhile()
    assert len(pids) == 3
    assert not any(is_running(pid) for pid in pids)
    assert not (tmp_path / "round").exists()


def test_a_broker_that_does_not_come_up_is_reported_with_its_reason(tmp_path: Path) -> None:
    system = Cordwood(brokers=3, settings={"num.partitions": "many"})
    with (
        pytest.raises(CannotRun, match=r"(?s)broker 1 did not come up:.*num\.partitions"),
        system.running(tmp_path / "round"),
    ):
        pytest.fail("it came up")
    assert not (tmp_path / "round").exists()


def test_a_disk_without_room_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cordwood.bench", "--scale", "1000000", "--data", str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=ENDED_S, cwd=os.path.sep, check=False)
    assert refused.returncode == 1
    assert "--data DIRECTORY" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_a_number_of_replicas_without_a_majority_is_refused() -> None:
    command = [sys.executable, "-m", "cordwood.bench", "--replication-factor", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=ENDED_S, cwd=os.path.sep, check=False)
    assert refused.returncode == 1
    assert "The replication factor is 1, 3 or 5" in refused.stderr
    assert "Traceback" not in refused.stderr
