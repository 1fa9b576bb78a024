"""`cordwood serve --processes`: the brokers of one host, their settings, and what happens when one of them ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from broker_fixture import free_port, wait_until

from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.host import own_overrides
from cordwood.cluster.cli.serve import answer
from cordwood.cluster.config.settings import Settings


def test_each_broker_has_its_own_number_ports_and_directory() -> None:
    settings = Settings(
        node_id=4,
        broker_rack="left",
        log_dirs=("/a", "/b"),
        listeners=("PLAINTEXT://:9092", "LAN://[::1]:9192", "FREE://h:0"),
        advertised_listeners=("PLAINTEXT://public:19092",),
        http_listen="127.0.0.1:8080",
    )
    first, second = own_overrides(settings, 2)
    assert "node.id=4" in first
    assert second == [
        "node.id=5",
        "broker.rack=left",
        "log.dirs=/a/broker-5,/b/broker-5",
        "listeners=PLAINTEXT://:9093,LAN://[::1]:9193,FREE://h:0",
        "advertised.listeners=PLAINTEXT://public:19093",
        "http.listen=127.0.0.1:8081",
    ]


def test_a_directory_of_a_single_broker_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "identity").touch()
    with pytest.raises(Failure, match="has the data of a single broker"):
        own_overrides(Settings(log_dirs=(str(tmp_path),)), 2)


@pytest.fixture
def host(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run two brokers on one host, of which the first is the only voter."""
    kafka, http = two_free_ports(), two_free_ports()
    texts = [
        f"listeners=PLAINTEXT://127.0.0.1:{kafka}",
        f"http.listen=127.0.0.1:{http}",
        f"controller.quorum.voters=1@127.0.0.1:{free_port()}",
        f"log.dirs={tmp_path}/data",
    ]
    words = [word for text in texts for word in ("--set", text)]
    command = [sys.executable, "-m", "cordwood.cluster.cli", "serve", "--processes", "2", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        process.http = http  # type: ignore[attr-defined]
        yield process
        process.kill()


def two_free_ports() -> int:
    """Return a port that is free, and so is the next."""
    while True:
        port = free_port()
        if port < 65535 and is_free(port + 1):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def is_ready(port: int) -> bool:
    try:
        answer("127.0.0.1", port)
    except Failure:
        return False
    return True


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    """Return the pids of the brokers, in the order of their starts."""
    return [child.pid for child in psutil.Process(process.pid).children()]


def test_a_broker_that_is_killed_comes_back_and_a_signal_stops_all(host: "subprocess.Popen[bytes]") -> None:
    port: int = host.http  # type: ignore[attr-defined]
    wait_until(lambda: is_ready(port) and is_ready(port + 1), 60, "both brokers")
    first, second = children(host)
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: len(children(host)) == 2 and is_ready(port + 1), 60, "the second broker again")
    assert second not in children(host)
    assert first in children(host)
    host.send_signal(signal.SIGTERM)
    assert host.wait(60) == 0
    assert host.stderr is not None
    assert b"broker 2 was killed by signal 9; it is started again" in host.stderr.read()
