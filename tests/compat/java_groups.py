"""Java's consumers of both group protocols and its share consumers, and Kafka's tools for their groups."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from brokers import QUIET, Brokers
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import TOOL_LIMIT_S, JavaTools

from cordwood.chaos.live.process import wait_for

PARTITIONS, RECORDS = 4, 200
ASSIGNED_S, ANSWER_S, STOP_S = 60.0, 30.0, 30.0
CONSUMER, SHARE_CONSUMER = "consumer.ConsoleConsumer", "consumer.ConsoleShareConsumer"
CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "consumer.group.ShareGroupCommand"


class JavaGroup:
    """A group with a topic, and processes of Java that are its members."""

    def __init__(self, tools: JavaTools, brokers: Brokers, place: Path) -> None:
        self.name = f"{place.name}-{tools.version}"
        self._tools, self._brokers, self._place = tools, brokers, place
        admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
        topic = NewTopic(self.name, PARTITIONS, brokers.count)
        admin.create_topics([topic])[self.name].result(ANSWER_S)
        self._sent = 0

    def produce(self) -> None:
        """Send RECORDS further records to all partitions."""
        producer = Producer({**QUIET, "bootstrap.servers": self._brokers.bootstrap})
        for number in range(self._sent, self._sent + RECORDS):
            producer.produce(self.name, f"{number}".encode(), partition=number % PARTITIONS)
        assert producer.flush(ANSWER_S) == 0
        self._sent += RECORDS

    @contextmanager
    def member(self, name: str, tool: str, *words: str) -> Iterator[None]:
        """Run a console consumer of the group; in the end it leaves."""
        words = ("--bootstrap-server", self._brokers.bootstrap, "--topic", self.name, "--group", self.name, *words)
        process = self._tools.start(self._place / name, tool, *words)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            finally:
                process.kill()

    def consumer(self, name: str, protocol: str) -> AbstractContextManager[None]:
        """Run a consumer that reads from the start, by a group protocol."""
        words = ("--from-beginning", "--command-property", f"group.protocol={protocol}")
        return self.member(name, CONSUMER, *words)

    def read(self, *names: str) -> list[int]:
        """Return the numbers that members have read so far, sorted."""
        text = "".join((self._place / name).read_text() for name in names)
        return sorted(int(line) for line in text.splitlines() if line.isdigit())

    def await_all(self, *names: str) -> None:
        """Wait until the members have read every record that was sent."""
        wanted = set(range(self._sent))
        assert wait_for(lambda: set(self.read(*names)) >= wanted, ASSIGNED_S), f"only {len(set(self.read(*names)))}"

    def tool(self, tool: str, *words: str) -> str:
        """Run a tool to its end and return what it prints."""
        return self._run(self._tools.command(tool, "--bootstrap-server", self._brokers.bootstrap, *words))

    def configs(self, *words: str) -> str:
        """Run `kafka-configs` for the group."""
        command = self._tools.admin_command("ConfigCommand", "--bootstrap-server", self._brokers.bootstrap)
        return self._run([*command, "--entity-type", "groups", "--entity-name", self.name, *words])

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def members(self, tool: str = CONSUMER_GROUPS) -> int:
        """Return the number of members that a tool describes."""
        shown = self.tool(tool, "--describe", "--group", self.name, "--members")
        return sum(line.split()[0] == self.name for line in shown.splitlines() if line.strip())

    def state(self) -> list[str]:
        """Return the words that the tool prints about the group's state."""
        return self.tool(CONSUMER_GROUPS, "--describe", "--group", self.name, "--state").split()

    def offsets(self, tool: str) -> dict[int, str]:
        """Return the committed or start offset of each partition that a tool shows."""
        shown = self.tool(tool, "--describe", "--group", self.name, "--offsets")
        rows = [line.split() for line in shown.splitlines() if line.startswith(self.name)]
        return {int(row[2]): row[3] for row in rows}

    def listed(self) -> list[str]:
        """Return the words after the group's name in `kafka-groups --list`."""
        lines = self.tool("GroupsCommand", "--list").splitlines()
        return next((line.split()[1:] for line in lines if line.split()[:1] == [self.name]), [])


def consumers_share_the_partitions(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Two consumers of the new protocol read all; the tools show them; offsets are reset once both have left."""
    group = JavaGroup(tools, brokers, place)
    group.produce()
    with group.consumer("a", "consumer"), group.consumer("b", "consumer"):
        assert wait_for(lambda: group.members() == 2, ASSIGNED_S)
        group.produce()
        group.await_all("a", "b")
        # One of them may have read all before it gives partitions up to the other.
        assert wait_for(lambda: {"Stable", "uniform"} <= set(group.state()), ASSIGNED_S), group.state()
        assert group.listed() == ["Consumer", "consumer"]
        shown = group.tool(CONSUMER_GROUPS, *_to_earliest(group))
        assert "current state is Stable" in shown, shown
    assert wait_for(lambda: set(group.offsets(CONSUMER_GROUPS).values()) == {"100"}, ANSWER_S)
    group.tool(CONSUMER_GROUPS, *_to_earliest(group))
    with group.consumer("c", "consumer"):
        group.await_all("c")
    group.tool(CONSUMER_GROUPS, "--delete", "--group", group.name)
    assert not group.listed()


def a_group_migrates_both_ways(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """A classic group gets a consumer of the new protocol, loses its classic one, and goes back."""
    group = JavaGroup(tools, brokers, place)
    with group.consumer("a", "classic"):
        assert wait_for(lambda: group.listed()[:1] == ["Classic"] and group.members() == 1, ASSIGNED_S)
        with group.consumer("b", "consumer"):
            assert wait_for(lambda: group.listed()[:1] == ["Consumer"] and group.members() == 2, ASSIGNED_S)
            group.produce()
            group.await_all("a", "b")
        assert wait_for(lambda: group.listed()[:1] == ["Classic"] and group.members() == 1, ASSIGNED_S)
        group.produce()
        group.await_all("a", "b")
    assert group.read("a", "b") == list(range(2 * RECORDS))


def share_consumers_share_the_records(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Two share consumers read each record once; the tools show them; offsets are reset, deleted, and the group too."""
    group = JavaGroup(tools, brokers, place)
    group.configs("--alter", "--add-config", "share.auto.offset.reset=earliest")
    group.produce()
    with group.member("a", SHARE_CONSUMER), group.member("b", SHARE_CONSUMER):
        group.await_all("a", "b")
        assert wait_for(lambda: group.members(SHARE_GROUPS) == 2, ASSIGNED_S)
        assert group.listed() == ["Share", "share"]
        group.produce()
        group.await_all("a", "b")
        assert "Stable" in group.tool(SHARE_GROUPS, "--describe", "--group", group.name, "--state")
    assert group.read("a", "b") == list(range(2 * RECORDS))
    group.tool(SHARE_GROUPS, *_to_earliest(group))
    assert set(group.offsets(SHARE_GROUPS).values()) == {"0"}
    with group.member("c", SHARE_CONSUMER):
        group.await_all("c")
    group.tool(SHARE_GROUPS, "--delete-offsets", "--group", group.name, "--topic", group.name)
    group.tool(SHARE_GROUPS, "--delete", "--group", group.name)
    assert not group.listed()


def rejected_and_released_records(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Records that one share consumer releases are read by another; rejected ones by none."""
    group = JavaGroup(tools, brokers, place)
    group.configs("--alter", "--add-config", "share.auto.offset.reset=earliest")
    group.produce()
    with group.member("releases", SHARE_CONSUMER, "--release", "--max-messages", "50"):
        assert wait_for(lambda: len(group.read("releases")) >= 50, ASSIGNED_S)
    with group.member("rejects", SHARE_CONSUMER, "--reject"):
        group.await_all("rejects")
    group.produce()
    with group.member("accepts", SHARE_CONSUMER):
        wanted = list(range(RECORDS, 2 * RECORDS))
        assert wait_for(lambda: group.read("accepts") == wanted, ASSIGNED_S), group.read("accepts")[:5]


def performance_tools(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """`kafka-consumer-perf-test` by the new protocol and `kafka-share-consumer-perf-test` read all records."""
    group = JavaGroup(tools, brokers, place)
    group.configs("--alter", "--add-config", "share.auto.offset.reset=earliest")
    group.produce()
    properties = place / "consumer.properties"
    properties.write_text("group.protocol=consumer\nauto.offset.reset=earliest\n")
    words = ("--topic", group.name, "--num-records", str(RECORDS), "--timeout", "30000")
    shown = group.tool(
        "ConsumerPerformance", *words, "--group", f"{group.name}-consumer", "--command-config", str(properties)
    )
    assert f", {RECORDS}, " in shown, shown
    shown = group.tool("ShareConsumerPerformance", *words, "--group", group.name)
    assert f", {RECORDS}, " in shown, shown


def configs_of_groups(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """`kafka-configs` sets, shows, refuses and removes configs of a group."""
    group = JavaGroup(tools, brokers, place)
    group.configs("--alter", "--add-config", "consumer.session.timeout.ms=50000,share.delivery.count.limit=3")
    shown = group.configs("--describe")
    assert "consumer.session.timeout.ms=50000" in shown
    assert "share.delivery.count.limit=3" in shown
    group.configs("--alter", "--delete-config", "share.delivery.count.limit")
    assert "share.delivery.count.limit=3" not in group.configs("--describe")


def _to_earliest(group: JavaGroup) -> Sequence[str]:
    return ("--reset-offsets", "--to-earliest", "--execute", "--group", group.name, "--topic", group.name)
