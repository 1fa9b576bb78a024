"""The client processes of a live run end with it, however it ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from broker_fixture import wait_until

from cordwood.chaos.live.options import workplace

BOUND_S = 60.0
RUN = """
import signal, sys
from pathlib import Path
from cordwood.chaos.live.load_clients import LoadOnCluster, LiveClients

load = LoadOnCluster("nowhere", 1, producers=1, consumers=1, members=1, transactional=4, transactions_per_second=1)
clients = LiveClients("127.0.0.1:1", load, Path(sys.argv[1]))
clients.start()
print(*(process.pid for process in clients._processes.values()), flush=True)
signal.pause()
"""


def running(groups: set[int]) -> set[int]:
    """Return the processes of these process groups that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) in groups and state not in "ZX":
            found.add(int(path.parent.name))
    return found


def test_no_client_goes_on_after_its_run_was_killed(tmp_path: Path) -> None:
    place = tmp_path / "clients"
    run = subprocess.Popen([sys.executable, "-c", RUN, str(place)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    groups = set(map(int, run.stdout.readline().split()))
    assert len(groups) == 7

    def have_begun() -> bool:
        files = [place / "producer-0", *(place / f"transactional-{number}.transactions" for number in range(4))]
        return all(file.exists() and file.stat().st_size for file in files)

    try:
        # Transactional clients without a broker: they begin their sessions, and those of the later half are children.
        wait_until(have_begun, BOUND_S, "rows of the clients")
        assert len(running(groups)) >= 9
        run.kill()
        run.wait()
        wait_until(lambda: not running(groups), BOUND_S / 2, "the end of the clients")
    finally:
        run.kill()
        for process in running(groups):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_a_second_sigterm_does_not_interrupt_the_end_of_a_run() -> None:
    before, done = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with workplace(None):
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                done.append("clients killed")

    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["clients killed"]
