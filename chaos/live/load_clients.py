"""The clients of a run, each in a process of its own: producers, transactional clients, consumers, group members."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.history import Outcome
from cordwood.chaos.live.client_rows import (
    POLLS,
    SENDS,
    TRANSACTIONS,
    TRANSACTIONS_SUFFIX,
    PollKind,
    RowArray,
    SendKind,
    Tail,
    TransactionKind,
)
from cordwood.chaos.live.process import wait_for
from cordwood.chaos.live.share_groups import share_group_of

PRODUCING, CONSUMING, TRANSACTING = "append_program", "consumer_program", "transaction_program"
SHARING = "share_program"
NICENESS = {PRODUCING: 15}
OTHERS_NICENESS = 5
"""Other clients are on other machines. These leave the processor to the brokers: while acknowledgements are slow, a
broker thread of librdkafka 2.16 polls its socket 14,000 times a second, which makes them slower."""
END_S = 90.0
"""Longer than a client's own timeouts."""
AT_END_S = 60.0
"""The longest time without a new record before a consumer is at the log end."""
LOOK_S = 0.05
TIMEOUT_MS = 10_000
"""The transaction timeout of every transactional client."""
LIFE_S = 20.0
"""The mean time until a client kills itself, where it does that."""

QUICK = (
    "linger.ms=2",
    "request.timeout.ms=3000",
    "socket.timeout.ms=4000",
    "reconnect.backoff.ms=20",
    "reconnect.backoff.max.ms=200",
    "retry.backoff.ms=20",
    "retry.backoff.max.ms=200",
    "topic.metadata.refresh.interval.ms=1000",
)
"""Short client timeouts, so that a measured time is the cluster's."""

CONSUMER_PROTOCOL = ("group.protocol=consumer",)
"""The setting of members of the consumer protocol (KIP-848)."""
UNCOMMITTED = ("isolation.level=read_uncommitted",)
QUICK_READER = ("reconnect.backoff.ms=20", "reconnect.backoff.max.ms=200", "socket.timeout.ms=4000")


@dataclass(frozen=True, slots=True)
class LoadOnCluster:
    """The load on a cluster. Every consumer by assignment reads all partitions."""

    topic: str
    seed: int
    partitions: int = 6
    producers: int = 4
    per_second: int = 100
    """Records per second of each producer."""
    consumers: int = 2
    members: int = 2
    consumer_members: int = 0
    """Members of a group of the consumer protocol (KIP-848). All but the first leave and join again."""
    share_members: int = 0
    """Members of a share group (KIP-932). They leave and join again."""
    transactional: int = 0
    """Clients that run transactions, with every second one in the second protocol. The later half kill themselves."""
    transactions_per_second: int = 10
    """Of each of these clients."""
    segment_bytes: int = 1 << 20
    settings: Sequence[str] = QUICK
    """librdkafka's settings of each producer."""
    reader_settings: Sequence[str] = QUICK_READER

    def reads_committed(self, consumer: int) -> bool:
        """Return whether a consumer by assignment reads with read_committed.

        Beside transactional clients one of them does not: it gets the records of aborted transactions too.
        """
        return not self.transactional or consumer != self.consumers - 1

    @property
    def steady(self) -> range:
        """The numbers of the transactional clients that do not kill themselves."""
        return range((self.transactional + 1) // 2)


class LaterCommit:
    """The first transaction of a client that began after a moment and was committed."""

    def __init__(self, moment_ns: int) -> None:
        self._moment_ns = moment_ns
        self._is_later = self._is_commit = False

    def take(self, rows: RowArray) -> int | None:
        """Take further rows. Return the time of the commit, if it is among them."""
        for kind, _transaction, first, _second, at_ns in rows.tolist():
            if kind == TransactionKind.BEGUN:
                self._is_later, self._is_commit = at_ns >= self._moment_ns, False
            elif kind == TransactionKind.COMMITTING:
                self._is_commit = True
            elif kind == TransactionKind.ENDED and self._is_later and self._is_commit and first == Outcome.OK:
                return int(at_ns)
        return None


class LiveClients:
    """The client processes, started once and stopped once. Their files are below `place`."""

    def __init__(self, bootstrap: str, load: LoadOnCluster, place: Path) -> None:
        self.load = load
        self._bootstrap, self._place = bootstrap, place
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._served: list[Tail] = []
        self._ended: dict[int, Tail] = {}
        self._has_late_reader = False
        place.mkdir(parents=True)

    @property
    def producer_files(self) -> list[Path]:
        """Rows of SENDS, by the producer's number."""
        return [self._place / f"producer-{number}" for number in range(self.load.producers)]

    @property
    def transactional_files(self) -> list[Path]:
        """Rows of SENDS of the transactional clients, by the client's number."""
        return [self._place / f"transactional-{number}" for number in range(self.load.transactional)]

    @property
    def transaction_files(self) -> list[Path]:
        """Rows of TRANSACTIONS of the same clients."""
        return [path.with_suffix(TRANSACTIONS_SUFFIX) for path in self.transactional_files]

    @property
    def consumer_files(self) -> list[Path]:
        """Rows of POLLS of the consumers by assignment, and last of the one that `read_again` starts."""
        return [self._place / f"consumer-{number}" for number in range(self.load.consumers + self._has_late_reader)]

    @property
    def member_files(self) -> list[Path]:
        """Rows of POLLS of the group's members."""
        return [self._place / f"member-{number}" for number in range(self.load.members)]

    @property
    def consumer_member_files(self) -> list[Path]:
        """Rows of POLLS of the members of the group of the consumer protocol."""
        return [self._place / f"consumer-member-{number}" for number in range(self.load.consumer_members)]

    @property
    def share_files(self) -> list[Path]:
        """Rows of SHARES of the members of the share group."""
        return [self._place / f"share-member-{number}" for number in range(self.load.share_members)]

    def start(self) -> None:
        """Start all clients."""
        for number, path in enumerate(self.producer_files):
            options = {"number": number, "seed": self.load.seed, "per-second": self.load.per_second}
            self._run(PRODUCING, path, options, self.load.settings)
        for number, path in enumerate(self.transactional_files):
            self._run(TRANSACTING, path, self._transactional_options(number), self.load.settings)
        for number, path in enumerate(self.consumer_files):
            isolation = () if self.load.reads_committed(number) else UNCOMMITTED
            self._run(CONSUMING, path, {}, (*self.load.reader_settings, *isolation))
        for path in self.member_files:
            self._run(CONSUMING, path, {"group": self.load.topic}, self.load.reader_settings)
        for number, path in enumerate(self.consumer_member_files):
            lives = {"group": consumer_group_of(self.load.topic), "life": LIFE_S if number else 0}
            self._run(CONSUMING, path, lives, (*self.load.reader_settings, *CONSUMER_PROTOCOL))
        for path in self.share_files:
            lives = {"group": share_group_of(self.load.topic), "life": LIFE_S}
            self._run(SHARING, path, lives, self.load.reader_settings)
        self._served = [Tail(path, SENDS) for path in self.producer_files]
        self._ended = {number: Tail(self.transaction_files[number], TRANSACTIONS) for number in self.load.steady}

    def served_after(self, moment_s: float, seconds: float) -> dict[int, float]:
        """Return, by partition, the seconds from `moment_s` to the first acknowledgement of a record sent after it.

        A partition without one within `seconds` from now is missing.
        """
        waited: dict[int, float] = {}

        def are_all_served() -> bool:
            time.sleep(LOOK_S)
            for tail in self._served:
                rows = tail.new_rows()
                later = (rows["kind"] == SendKind.ACKNOWLEDGED) & (rows["invoked_ns"] >= moment_s * 1e9)
                for row in rows[later]:
                    waited.setdefault(int(row["partition"]), row["at_ns"] / 1e9 - moment_s)
            return len(waited) == self.load.partitions

        wait_for(are_all_served, seconds)
        return waited

    def committed_after(self, moment_s: float, seconds: float) -> dict[int, float]:
        """Return, by steady transactional client, the seconds from `moment_s` to its first later committed transaction.

        The transaction began after `moment_s`. A client without one within `seconds` from now is missing.
        """
        waited: dict[int, float] = {}
        commits = {number: LaterCommit(int(moment_s * 1e9)) for number in self._ended}

        def have_all_committed() -> bool:
            time.sleep(LOOK_S)
            for number, tail in self._ended.items():
                at_ns = commits[number].take(tail.new_rows())
                if at_ns is not None:
                    waited.setdefault(number, at_ns / 1e9 - moment_s)
            return len(waited) == len(self._ended)

        if commits:
            wait_for(have_all_committed, seconds)
        return waited

    def stop_sending(self) -> list[Anomaly]:
        """End every producer once all its sends are answered. Return an anomaly for each that fails to."""
        anomalies = [
            Anomaly("client-ended", f"{name}: {words}.", (), 1)
            for name, words in self._end(self.transactional_files).items()
            if words
        ]
        for name, said in self._end(self.producer_files).items():
            if said != "0":
                what = f"{said} of its sends were never answered" if said.isdecimal() else said
                anomalies.append(Anomaly("unanswered", f"{name}: {what}.", (), 1))
        return anomalies

    def read_again(self) -> None:
        """Start one more consumer by assignment, which reads everything from the start."""
        self._has_late_reader = True
        self._run(CONSUMING, self.consumer_files[-1], {}, self.load.reader_settings)

    def read_to(self, ends: Mapping[int, int]) -> list[Anomaly]:
        """Wait until every consumer by assignment, and the group, have read to `ends`. Return an anomaly if not."""
        readers = {path.name: [Tail(path, POLLS)] for path in self.consumer_files}
        readers["group"] = [Tail(path, POLLS) for path in self.member_files]
        if self.load.consumer_members:
            readers["group of the consumer protocol"] = [Tail(path, POLLS) for path in self.consumer_member_files]
        reached: dict[str, dict[int, int]] = {name: {} for name in readers}
        moved_s = time.monotonic()
        while not all(end <= seen.get(at, 0) for seen in reached.values() for at, end in ends.items()):
            if time.monotonic() > moved_s + AT_END_S:
                sentence = f"Consumers did not reach the log end: {reached}, and the log ends at {dict(ends)}."
                return [Anomaly("unread", sentence, (), 1)]
            time.sleep(LOOK_S)
            for name, tails in readers.items():
                for at, end in (row for tail in tails for row in ends_read(tail.new_rows()).items()):
                    if end > reached[name].get(at, 0):
                        reached[name][at], moved_s = end, time.monotonic()
        return []

    def stop_reading(self) -> list[Anomaly]:
        """End every consumer. Return an anomaly for each that fails to."""
        said = self._end([*self.consumer_files, *self.member_files, *self.consumer_member_files, *self.share_files])
        return [Anomaly("client-ended", f"{name}: {words}.", (), 1) for name, words in said.items() if words]

    def kill(self) -> None:
        """Kill all processes that still run."""
        for process in self._processes.values():
            # A transactional client that kills itself is a child of the process that starts it again.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _transactional_options(self, number: int) -> dict[str, object]:
        load = self.load
        return {
            "number": number,
            "producer": load.producers + number,
            "seed": load.seed,
            "per-second": load.transactions_per_second,
            "timeout-ms": TIMEOUT_MS,
            "protocol": 1 + number % 2,
            "life": 0 if number in load.steady else LIFE_S,
        }

    def _end(self, paths: Sequence[Path]) -> dict[str, str]:
        """End clients by closing their standard input. Return each one's output, or in words how it ended instead."""
        processes = {path.name: self._processes[path.name] for path in paths}
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
        deadline = time.monotonic() + END_S
        said = {}
        for name, process in processes.items():
            try:
                code = process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                said[name] = f"it did not end within {END_S:.0f} s"
                continue
            assert process.stdout is not None
            said[name] = process.stdout.read().strip() if code == 0 else f"it ended with exit code {code}"
        return said

    def _run(self, program: str, rows: Path, options: Mapping[str, object], settings: Sequence[str]) -> None:
        common = {"bootstrap": self._bootstrap, "topic": self.load.topic, "partitions": self.load.partitions}
        command = ["nice", "-n", str(NICENESS.get(program, OTHERS_NICENESS))]
        command += [sys.executable, "-m", f"cordwood.chaos.live.{program}"]
        for key, value in {**common, "rows": rows, **options}.items():
            command += [f"--{key}", str(value)]
        for setting in settings:
            command += ["--setting", setting]
        with rows.with_suffix(".errors").open("ab") as errors:
            self._processes[rows.name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._place,
                # Ctrl-C goes to our process group only: we end the clients.
                start_new_session=True,
            )


def consumer_group_of(topic: str) -> str:
    """Return the group of the consumer protocol of a run."""
    return f"{topic}-848"


def rows_of(paths: Iterable[Path], form: "np.dtype[np.void]") -> list[RowArray]:
    """Return all rows of each file."""
    return [Tail(path, form).new_rows() for path in paths]


def ends_read(rows: RowArray) -> dict[int, int]:
    """Return the offset up to which each partition was read."""
    is_polled, is_end = rows["kind"] == PollKind.POLLED, rows["kind"] == PollKind.REACHED_END
    reached = rows[is_polled | is_end]
    ends = reached["offset"] + (reached["kind"] == PollKind.POLLED)
    return {int(at): int(ends[reached["partition"] == at][-1]) for at in np.unique(reached["partition"])}
