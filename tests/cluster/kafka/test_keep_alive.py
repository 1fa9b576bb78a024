"""TCP keepalive of connections between brokers: a peer that vanished is noticed, also with unacknowledged bytes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from requirements import Requirement, needs

HERE, THERE, ELSEWHERE = "10.77.0.1/24", "10.77.0.2", "10.77.0.9/24"
LISTEN = f"""
import socket
listener = socket.create_server(("{THERE}", 5555))
print("listening", flush=True)
connection, _ = listener.accept()
input()
"""
REPORT = f"""
import socket
from cordwood.cluster.kafka.peers import Peers
connection = socket.create_connection(("{THERE}", 5555), timeout=10)
Peers.keep_alive.apply(connection)
connection.sendall(b"a report")
print("connected", flush=True)
input()
connection.sendall(b"a report on its way when the network fails")
print("sent", flush=True)
connection.settimeout(60)
try:
    connection.recv(1)
except ConnectionError as error:
    print("closed", flush=True)
except TimeoutError as error:
    print("closed" if error.errno else "kept", flush=True)
"""


def in_network(*command: str) -> subprocess.Popen[str]:
    """Start a program in a network namespace, with its input and output as pipes."""
    return subprocess.Popen(
        ["ip", "netns", "exec", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Make two network namespaces that are connected by a cable, `cable` in each of them."""
    names = (f"cw-{uuid4().hex[:8]}", f"cw-{uuid4().hex[:8]}")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, (HERE, f"{THERE}/24"), strict=True):
            ip("-n", name, "addr", "add", address, "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@needs(Requirement.ROOT, os.geteuid() == 0 and shutil.which("ip") is not None, "network namespaces need root and ip")
def test_a_report_on_its_way_does_not_keep_the_connection_of_a_broker_that_moved(networks: tuple[str, str]) -> None:
    """Without a limit for unacknowledged bytes, TCP sends them again for a quarter of an hour."""
    here, there = networks
    listening = in_network(there, sys.executable, "-c", LISTEN)
    assert listening.stdout is not None
    assert listening.stdout.readline() == "listening\n"
    reporting = in_network(here, sys.executable, "-c", REPORT)
    assert reporting.stdin is not None
    assert reporting.stdout is not None
    assert reporting.stdout.readline() == "connected\n"
    ip("-n", here, "link", "set", "cable", "down")
    ip("-n", here, "addr", "flush", "dev", "cable")
    reporting.stdin.write("\n")
    assert reporting.stdout.readline() == "sent\n"
    ip("-n", here, "addr", "add", ELSEWHERE, "dev", "cable")
    ip("-n", here, "link", "set", "cable", "up")
    assert reporting.stdout.readline() == "closed\n"
    reporting.communicate(timeout=10)
    listening.communicate("\n", timeout=10)
