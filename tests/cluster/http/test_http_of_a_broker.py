"""A running broker over HTTP, from before it has joined its cluster until shutdown."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from command import cordwood, start_cordwood
from http_fixture import parsed

from cordwood.cluster.cli.exits import ExitCode

ANSWER_S = 10.0
MORE_THAN_ANY_DISK = 1 << 60


def ask(address: str, path: str) -> tuple[int, str]:
    """Return status and text of a GET."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=ANSWER_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def is_alive(address: str) -> bool:
    try:
        return ask(address, "/healthz") == (200, "alive\n")
    except OSError:
        return False


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def watched(tmp_path: Path, address: str) -> Iterator[RunningBroker]:
    """Yield a broker with an HTTP listener."""
    broker = RunningBroker(tmp_path / "data", http_listen=address).start()
    yield broker
    broker.stop()


def test_a_broker_shows_what_it_leads(watched: RunningBroker, address: str) -> None:
    wait_until(lambda: ask(address, "/readyz") == (200, "ready\n"), ANSWER_S, "readiness")
    cordwood("topic", "create", "t", bootstrap=watched.bootstrap)
    cordwood("produce", "t", stdin=b"a\nb\n", bootstrap=watched.bootstrap)
    samples = parsed(ask(address, "/metrics")[1])
    assert samples["cordwood_partitions", frozenset({("role", "leader")})] == 1
    place = frozenset({("topic", "t"), ("partition", "0")})
    assert samples["cordwood_partition_high_watermark_offset", place] == 2
    status = json.loads(ask(address, "/v1/status")[1])
    assert (status["broker_id"], status["controller_id"], status["is_fenced"]) == (1, 1, False)
    ends = {(led["topic"], led["partition"]): led["log_end"] for led in status["partitions_led"]}
    assert ends == {("t", 0): 2}
    assert watched.terminate() == ExitCode.OK


def test_a_broker_that_waits_for_its_cluster_is_alive_and_not_ready(tmp_path: Path, address: str) -> None:
    voters = ",".join(f"{broker}@127.0.0.1:{free_port()}" for broker in (1, 2, 3))
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "controller.quorum.voters": voters,
        "http.listen": address,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    serving = start_cordwood("serve", *words)
    try:
        wait_until(lambda: is_alive(address), ANSWER_S, "an answer over HTTP")
        code, reason = ask(address, "/readyz")
        assert code == 503
        assert "has not joined its cluster" in reason
        assert json.loads(ask(address, "/v1/status")[1])["controller_id"] is None
    finally:
        serving.send_signal(signal.SIGTERM)
        _, stderr = serving.communicate(timeout=30)
    assert serving.returncode == ExitCode.OK
    assert b"Traceback" not in stderr


def test_a_broker_without_room_is_not_ready_and_says_which_directory(tmp_path: Path, address: str) -> None:
    broker = RunningBroker(
        tmp_path / "data", http_listen=address, log_dir_headroom_bytes=str(MORE_THAN_ANY_DISK)
    ).start()
    try:
        wait_until(lambda: "no room" in ask(address, "/readyz")[1], ANSWER_S, "the reason")
        code, reason = ask(address, "/readyz")
        assert code == 503
        assert str(tmp_path / "data") in reason
        # The number of available bytes changes all the time.
        again = json.loads(ask(address, "/v1/status")[1])["why_not_ready"]
        assert re.sub(r"\d+ bytes", "", again) == re.sub(r"\d+ bytes", "", reason.strip())
        assert parsed(ask(address, "/metrics")[1])["cordwood_broker_is_ready", frozenset()] == 0
    finally:
        broker.stop()


def test_a_port_that_is_taken_is_a_sentence(broker: RunningBroker, tmp_path: Path) -> None:
    words = [f"log.dirs={tmp_path / 'other'}", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"]
    outcome = cordwood("serve", "--set", words[0], "--set", words[1], "--set", f"http.listen={broker.bootstrap}")
    assert outcome.exit_code == ExitCode.FAILED
    assert f"http.listen on {broker.bootstrap}: cannot listen" in outcome.stderr


def test_a_broker_without_http_does_not_carry_its_libraries() -> None:
    program = (
        "import cordwood.cluster.broker.process, sys; "
        "print(sorted({'aiohttp', 'msgspec', 'prometheus_client'} & sys.modules.keys()))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=Path("/"))
    assert loaded.stdout.split() == [b"[]"]
