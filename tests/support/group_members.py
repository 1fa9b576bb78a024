"""Consumer group members as processes, and the rebalance scenarios that every client runs."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from broker_fixture import wait_until
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

PARTITIONS = 6
REBALANCE_S = 25.0
STOP_S = 15.0
DESCRIBED_S = 10.0
COMPLAINTS_TOLD = 5
PROCESS = Path(__file__).with_name("group_member_process.py")
# The line is "… assigned: t [0], t [1]", or for cooperative rebalancing "… incremental assignment of 2 partition(s)
# (…): t [0], t [1]".
KCAT_REBALANCED = re.compile(r"rebalanced.* (assign|revoke)[^:]*: ?(.*)")
KCAT_PARTITION = re.compile(r"\[(\d+)\]")


class Member:
    """A consumer in a process. Its assignment and the records it read are known here as they happen."""

    def __init__(self, command: list[str], is_cooperative: bool) -> None:
        self.assignment: set[int] = set()
        self.ever_revoked: set[int] = set()
        self.read: list[tuple[int, int]] = []
        """(partition, offset) in the order of reading."""
        self.errors: list[str] = []
        self._is_cooperative = is_cooperative
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self._threads = [threading.Thread(target=follow, daemon=True) for follow in (self._outputs, self._complaints)]
        for thread in self._threads:
            thread.start()

    def __str__(self) -> str:
        exit_code = self._process.poll()
        state = "runs" if exit_code is None else f"ended with {exit_code}"
        complaints = "".join(f"\n    {line}" for line in self.errors[-COMPLAINTS_TOLD:])
        return f"a member {state}, has {sorted(self.assignment)} and said last:{complaints or ' nothing'}"

    def crash(self) -> None:
        """Send SIGKILL: the coordinator hears nothing more from the member."""
        self._end(signal.SIGKILL)

    def leave(self) -> None:
        """Send SIGTERM: the member leaves the group."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
            raise
        for thread in self._threads:
            thread.join(STOP_S)

    def stop(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._end(signal.SIGTERM)

    def _outputs(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output(line)

    def _complaints(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaint(line)

    def _output(self, line: str) -> None:
        reported = json.loads(line)
        if reported["event"] == "read":
            self.read.append((reported["partition"], reported["offset"]))
        else:
            self._rebalanced(reported["event"], set(reported["partitions"]))

    def _complaint(self, line: str) -> None:
        self.errors.append(line.rstrip())

    def _rebalanced(self, event: str, partitions: set[int]) -> None:
        if event == "assigned":
            self.assignment = self.assignment | partitions if self._is_cooperative else partitions
        else:
            self.assignment = self.assignment - partitions
            self.ever_revoked |= partitions


class KcatMember(Member):
    """A kcat consumer: prints records on standard output, and rebalances on standard error."""

    def _output(self, line: str) -> None:
        partition, offset = line.split()
        self.read.append((int(partition), int(offset)))

    def _complaint(self, line: str) -> None:
        super()._complaint(line)
        if found := KCAT_REBALANCED.search(line):
            event = "assigned" if found[1] == "assign" else "revoked"
            self._rebalanced(event, {int(index) for index in KCAT_PARTITION.findall(found[2])})


class Group:
    """Members of one group on one topic. The group is named after its topic, so no other test's members delay it."""

    def __init__(self, client: str, bootstrap: str, topic: str, *, is_cooperative: bool = False) -> None:
        self.members: list[Member] = []
        self.crashed: list[Member] = []
        self._client, self._bootstrap, self._topic = client, bootstrap, topic
        self._name = f"group-of-{topic}"
        self._is_cooperative = is_cooperative

    def join(self) -> Member:
        """Start one more member. Return once all members share the partitions evenly."""
        if self._client == "kcat":
            strategy = "cooperative-sticky" if self._is_cooperative else "range"
            options = {
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": "3000",
                "heartbeat.interval.ms": "300",
                "auto.commit.interval.ms": "200",
            }
            words = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
            command = ["kcat", "-b", self._bootstrap, "-u", "-f", "%p %o\\n", *words, "-G", self._name, self._topic]
            self.members.append(KcatMember(command, self._is_cooperative))
        else:
            protocol = "cooperative" if self._is_cooperative else "eager"
            command = [sys.executable, str(PROCESS), self._client, self._bootstrap, self._name, self._topic, protocol]
            self.members.append(Member(command, self._is_cooperative))
        self.settle()
        return self.members[-1]

    def crash(self, member: Member) -> None:
        member.crash()
        self.members.remove(member)
        self.crashed.append(member)
        self.settle()

    def leave(self, member: Member) -> None:
        member.leave()
        self.members.remove(member)
        self.crashed.append(member)
        self.settle()

    def settle(self) -> None:
        """Wait until every partition has one owner and the members' shares differ by at most one partition."""

        def is_even() -> bool:
            shares = [set(member.assignment) for member in self.members]
            owned = [index for share in shares for index in share]
            return sorted(owned) == list(range(PARTITIONS)) and max(map(len, shares)) - min(map(len, shares)) <= 1

        self.wait_until(is_even, "an even assignment")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait as `broker_fixture.wait_until`. The failure has the state of the members and of the coordinator."""
        try:
            wait_until(condition, REBALANCE_S, what)
        except AssertionError as error:
            members = "".join(f"\n{member}" for member in self.members)
            reported = coordinators_view(self._bootstrap, self._name)
            raise AssertionError(f"{error}:{members}\n{reported}") from None

    def has_read(self, ends: dict[int, int]) -> bool:
        """Return whether the members, those that left included, have read each partition up to its end."""
        seen = {place for member in (*self.members, *self.crashed) for place in list(member.read)}
        return all((index, offset) in seen for index, end in ends.items() for offset in range(end))

    def stop(self) -> None:
        for member in self.members:
            member.stop()


def coordinators_view(bootstrap: str, group: str) -> str:
    """Describe a group as its coordinator sees it, for a failure's message."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=DESCRIBED_S)[group].result(DESCRIBED_S)
    except (KafkaException, TimeoutError) as error:
        return f"the coordinator does not describe {group}: {error}"
    shares = {
        member.member_id: sorted(place.partition for place in member.assignment.topic_partitions)
        for member in described.members
    }
    return f"to the coordinator, {group} is {described.state.name} with {shares or 'no members'}"


@contextlib.contextmanager
def group_of(client: str, bootstrap: str, topic: str, *, is_cooperative: bool = False) -> Iterator[Group]:
    group = Group(client, bootstrap, topic, is_cooperative=is_cooperative)
    try:
        yield group
    finally:
        group.stop()


def three_members_join_crash_and_leave(group: Group, produce: Callable[[], dict[int, int]]) -> None:
    """Check that a group reads on while three members join, one crashes and one leaves.

    `produce` sends records to every partition and returns the ends of the partitions.
    """

    def all_is_read() -> None:
        ends = produce()
        group.wait_until(lambda: group.has_read(ends), f"the group to read up to {ends}")

    first, second, third = (group.join() for _ in range(3))
    assert [len(member.assignment) for member in (first, second, third)] == [2, 2, 2]
    all_is_read()
    group.crash(third)
    all_is_read()
    group.leave(second)
    assert first.assignment == set(range(PARTITIONS))
    all_is_read()
    # A record that a leaving member committed is not read again; only a crash may leave records uncommitted.
    assert not set(second.read) & set(first.read[-PARTITIONS:])


def kept_partitions_are_not_revoked(group: Group) -> None:
    """Check KIP-429: while members join, the existing members give up only the partitions that move."""
    first = group.join()
    assert first.assignment == set(range(PARTITIONS))
    group.join()
    group.join()
    assert len(first.assignment) == 2
    assert not first.assignment & first.ever_revoked
