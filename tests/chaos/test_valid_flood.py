"""The flood of valid requests: determined by its seed, with every announced API, and detection of violations."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Producer
from kio.index import load_request_schema

from cordwood.chaos.live.bystander import LiveBystander, Observed
from cordwood.chaos.live.flood import attack
from cordwood.chaos.live.flood.attack import SentShots
from cordwood.chaos.live.flood.large_requests import UnknownApi, arrays, large_request, versions_known
from cordwood.chaos.live.flood.shots import Shot, ShotOutcome, announced
from cordwood.chaos.live.flood.stage import NAMES, FloodCluster, latest_in
from cordwood.chaos.live.flood.verdict import GROWTH_MB_MAX, WAIT_S_MAX, FloodVerdict, judge
from cordwood.chaos.live.flood.waits import MachineTime, Wait, stalls
from cordwood.chaos.live.flood.watch import BrokerWatch
from cordwood.chaos.live.valid_flood import flooded
from cordwood.cluster.kafka.registry import KAFKA_APIS

PLANTED_STALL_S = 5.0
PLANTED_MB = 200
FLOOD_S, ENDLESS_S = 60.0, 120.0
EVERY_API = {int(key) for key in KAFKA_APIS}


def test_the_same_seed_draws_the_same_request() -> None:
    drawn = [large_request(random.Random("7/1/2"), 3, 8, NAMES) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert large_request(random.Random("7/1/3"), 3, 8, NAMES) != drawn[0]


def test_arrays_within_arrays_are_found() -> None:
    fetch = set(arrays(load_request_schema(1, 12)))
    assert {("topics",), ("topics", "partitions"), ("forgotten_topics_data", "partitions")} <= fetch


@pytest.mark.parametrize("key", sorted(EVERY_API))
def test_a_request_of_every_api_has_all_the_items_that_it_claims(key: int) -> None:
    version = versions_known(key, 0, 100)[-1]
    rng = random.Random(key)
    drawn = [large_request(rng, key, version, NAMES) for _ in range(4)]
    assert all(int.from_bytes(each.frame[:4], "big") == len(each.frame) - 4 for each in drawn)
    has_arrays = bool(list(arrays(load_request_schema(key, version))))
    assert has_arrays == any(" x " in each.what for each in drawn)


def test_an_api_that_is_announced_and_not_known_is_no_api_to_leave_out() -> None:
    with pytest.raises(UnknownApi, match="API 4711"):
        versions_known(4711, 0, 3)


def test_what_a_broker_announces_is_what_is_sent(broker: RunningBroker) -> None:
    assert {key for key, _ in announced(broker.bootstrap)} == EVERY_API


def test_a_wait_for_a_processor_or_for_the_disk_is_not_the_brokers() -> None:
    machine = MachineTime()
    for time_s, starved_s, probe_s in ((1.0, 0.0, 0.01), (2.0, 0.6, 0.01), (3.0, 0.6, 0.3), (4.0, 0.6, 0.01)):
        machine.add(time_s, (starved_s, 0.1), 0.0, probe_s)
    assert machine.share_of(Wait("record", 1.0, 2.0)) == pytest.approx(0.61)
    assert machine.share_of(Wait("record", 2.5, 3.5)) == pytest.approx(0.3)
    assert machine.share_of(Wait("record", 1.5, 1.6)) == pytest.approx(0.1)
    assert MachineTime().share_of(Wait("record", 1.0, 2.0)) == 0.0


def test_a_wait_of_the_bystanders_own_threads_is_not_the_brokers() -> None:
    machine = MachineTime()
    for time_s, clients_s in ((1.0, 0.0), (2.0, 0.4)):
        machine.add(time_s, (0.0,), clients_s, 0.1)
    assert machine.share_of(Wait("record", 1.0, 2.0)) == pytest.approx(0.4)


def test_waits_at_one_time_are_one_stall() -> None:
    waits = [Wait("record", 1.0, 3.0), Wait("heartbeat", 1.5, 3.1), Wait("acknowledgement", 5.0, 5.4)]
    assert [(stall.wait.kind, round(stall.blamed_s, 1)) for stall in stalls(waits, MachineTime())] == [
        ("record", 2.0),
        ("acknowledgement", 0.4),
    ]


def test_the_latest_ring_of_a_loops_timer_is_found() -> None:
    rows = {"0.001": 5, "0.1": 9, "1.0": 9, "+Inf": 9}
    text = "\n".join(
        f'cordwood_loop_lateness_seconds_bucket{{le="{bound}"}} {count}.0' for bound, count in rows.items()
    )
    assert latest_in(text) == 0.1
    assert latest_in("") == 0.0


@dataclass
class Program:
    """A process in place of a broker."""

    code: str
    process: subprocess.Popen[bytes] | None = None
    address = "127.0.0.1:1"

    def start(self) -> "Program":
        self.process = subprocess.Popen([sys.executable, "-c", self.code], stdin=subprocess.PIPE)
        return self

    @property
    def running_pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def output(self) -> str:
        return "event=broker.ready\nTraceback (most recent call last): planted"

    def last_words(self) -> str:
        return "the last line"

    def resume(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def program() -> Iterator[Program]:
    leak = f"leaked = b'x' * ({PLANTED_MB} << 20)"
    running = Program(f"import sys, time; sys.stdin.read(); {leak}; time.sleep(60)")
    yield running.start()
    assert running.process is not None
    running.process.kill()
    running.process.wait()


def watched(program: Program, place: Path) -> FloodVerdict:
    watch = BrokerWatch([program], place)
    watch.start()
    program.resume()
    wait_until(lambda: watch.growth_mb > GROWTH_MB_MAX or program.has_ended, 20.0, "the planted violation")
    watch.stop()
    at_s = watch.peak_s
    shot = Shot("7/1/2", "a planted request", at_s - 1.0, at_s + 1.0, ShotOutcome.ANSWERED)
    return judge(Observed(), watch, SentShots((shot,)))


def test_memory_that_grows_is_noticed_with_the_request_that_was_under_way(program: Program, tmp_path: Path) -> None:
    complaints = watched(program, tmp_path).complaints
    assert any("a broker grew by" in each and "--shot 7/1/2: a planted request" in each for each in complaints)
    assert any("traceback in a log" in each for each in complaints)


def test_an_exit_is_noticed(tmp_path: Path) -> None:
    program = Program("import sys; sys.stdin.read(); sys.exit(1)").start()
    assert any("exited:\nthe last line" in each for each in watched(program, tmp_path).complaints)


def test_a_broker_that_stands_still_and_then_exits_is_noticed(tmp_path: Path) -> None:
    with FloodCluster(tmp_path) as stage:
        [broker] = stage.cluster.brokers.values()
        stalled_s = time.monotonic()
        broker.pause()
        time.sleep(PLANTED_STALL_S)
        broker.resume()
        shot = Shot("7/1/2", "a planted request", stalled_s, time.monotonic(), ShotOutcome.ANSWERED)
        stalled = stage.verdict(SentShots((shot,)))
    assert stalled.lateness_s >= PLANTED_STALL_S
    assert stalled.worst is not None
    assert stalled.worst.blamed_s > WAIT_S_MAX
    assert any("the bystander waited" in each and "--shot 7/1/2" in each for each in stalled.complaints)


def test_a_record_that_was_never_sent_is_noticed(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("bystander", b"planted")
    assert producer.flush(20) == 0
    bystander = LiveBystander(broker.bootstrap, "bystander")
    bystander.start()
    bystander.wait_until_steady(30.0)
    errors = bystander.stop().errors
    assert any("record b'planted' came where 0 was due" in error for error in errors), errors


def test_a_flood_ends_where_its_broker_has(tmp_path: Path) -> None:
    with FloodCluster(tmp_path) as stage:
        [broker] = stage.cluster.brokers.values()
        killed_s: list[float] = []

        def kill_once() -> None:
            if not killed_s:
                killed_s.append(time.monotonic())
                os.kill(broker.pid, signal.SIGKILL)

        sent = attack.flood(stage.aims(), 7, ENDLESS_S, 1, stage.is_broker_gone, kill_once)
        assert time.monotonic() - killed_s[0] < ENDLESS_S
        verdict = stage.verdict(sent)
    assert sent.shots
    assert any("exited" in each for each in verdict.complaints)


def test_a_harmless_scenario_is_no_reason_to_complain(tmp_path: Path) -> None:
    with FloodCluster(tmp_path) as stage:
        sent = attack.scenario(stage.aims(), "long-polls")
        assert (sent.complaints, sent.remark) == ((), "")
        assert stage.verdict(sent).complaints == ()


@pytest.mark.timeout(240)
def test_a_flood_of_the_largest_valid_requests_troubles_no_bystander(tmp_path: Path) -> None:
    sent, verdict = flooded(tmp_path, seed=3, seconds=FLOOD_S)
    assert verdict.complaints == (), verdict.figures
    assert len(sent.shots) > 60
    assert verdict.acknowledged > 600
