"""A live cluster and its brokers, wherever they run: start, stop, and the metadata that each broker returns."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, Self, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.chaos.live.broker_views import (
    BrokerUnreachable,
    PartitionView,
    brokers_seen_by,
    controller_seen_by,
    coordinator_seen_by,
    partitions_seen_by,
)
from cordwood.chaos.live.process import BrokerEnded, run_cordwood, wait_for
from cordwood.chaos.live.security import client_settings

REPLICAS_MAX = 3
ANSWER_S = 20.0
ALIVE_S = 30.0
IN_SYNC_S = 60.0
ASKING_S = 30.0

Answer = TypeVar("Answer")


class NotInTime(Exception):
    """The cluster did not reach the expected state in time. The message has each broker's last answer."""


class LiveBroker(Protocol):
    """One broker: a process, a container, or a remote broker. Its address stays the same over restarts."""

    @property
    def address(self) -> str:
        """host:port, as clients take it."""

    @property
    def is_running(self) -> bool:
        """Whether we started the broker and did not end it. It may have ended by itself."""

    @property
    def has_ended(self) -> bool:
        """Whether the broker ended by itself."""

    def begin(self) -> None:
        """Start the broker without waiting for it."""

    def wait(self) -> None:
        """Wait until the broker accepts connections. Raises BrokerEnded."""

    def kill(self) -> None:
        """End the broker with SIGKILL. Does nothing where it has ended already."""

    def stop(self) -> None:
        """Shut the broker down cleanly, and wait for the end. Raises StillRuns."""

    def pause(self) -> None:
        """Suspend the broker; its connections stay open."""

    def resume(self) -> None:
        """Resume the broker."""

    def last_words(self) -> str:
        """Return the last lines of its output."""


class LiveCluster:
    """Brokers by their ids. All brokers are killed at the end of the `with` block."""

    brokers: Mapping[int, LiveBroker]
    replicas: int
    """The replication factor of the topics that `create_topic` creates."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def ids(self) -> list[int]:
        return list(self.brokers)

    @property
    def bootstrap(self) -> str:
        """Every broker's address, in the form of `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, ids: Iterable[int] | None = None) -> None:
        """Start `ids`, or all that are not running, in parallel. Wait until every running broker sees them alive.

        Raises BrokerEnded, NotInTime.
        """
        wanted = [id_ for id_ in self.ids if not self.brokers[id_].is_running] if ids is None else list(ids)
        self.begin(wanted)
        if not wait_for(lambda: self._are_known(set(wanted)), ALIVE_S):
            raise NotInTime(f"brokers {wanted} are not alive within {ALIVE_S:.0f} s:\n{self.beliefs()}")

    def begin(self, ids: Iterable[int]) -> None:
        """Start `ids` in parallel. Wait until they accept connections, whatever the others do. Raises BrokerEnded."""
        started = [self.brokers[id_] for id_ in ids]
        for broker in started:
            broker.begin()
        for broker in started:
            broker.wait()

    def stop(self) -> None:
        """Shut down all brokers cleanly, one after the other."""
        for broker in self.brokers.values():
            broker.stop()

    def kill(self) -> None:
        """Send SIGKILL to all brokers, whatever state they are in."""
        for broker in self.brokers.values():
            broker.kill()

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a topic with `replicas` replicas. Wait until they are in sync. Raises KafkaException, NotInTime."""
        topic = NewTopic(name, partitions, self.replicas, config=dict(configs))
        admin = AdminClient(client_settings(self.bootstrap))
        admin.create_topics([topic], request_timeout=ANSWER_S)[name].result(ANSWER_S)
        self.wait_in_sync(partitions={name: partitions})

    def elect_preferred(self, topic: str) -> None:
        """Run a preferred leader election for every partition of a topic. Raises NotInTime."""
        elected = run_cordwood("partition", "elect", topic, "-b", self.bootstrap)
        if elected.returncode:
            raise NotInTime(f"no election for {topic}: {elected.stderr}")

    def leader_of(self, topic: str, partition: int) -> int:
        """Return a partition's leader, once a running broker reports one. Raises NotInTime."""
        return self.partition(topic, partition).leader

    def led_by(self, id_: int, topic: str) -> set[int]:
        """Return the partitions of a topic that a broker leads, by some running broker's metadata. Raises NotInTime."""
        return {view.index for view in self.partitions() if view.topic == topic and view.leader == id_}

    def partition(self, topic: str, partition: int) -> PartitionView:
        """Return a partition by some running broker's metadata, once it has a leader. Raises NotInTime."""

        def seen() -> PartitionView | None:
            views = (view for view in self.partitions() if (view.topic, view.index) == (topic, partition))
            return next((view for view in views if view.leader >= 0), None)

        return self._asked(seen, f"a leader of {topic}-{partition}")

    def partitions(self) -> tuple[PartitionView, ...]:
        """Return all partitions by the metadata of the first running broker that answers. Raises NotInTime."""
        return self._asked(lambda: self._first_answer(partitions_seen_by), "an answer to Metadata")

    def controller(self) -> int:
        """Return the id of the active controller. Raises NotInTime."""
        return self._asked(lambda: self._first_answer(controller_seen_by), "a controller")

    def coordinator(self, transactional_id: str) -> int:
        """Return the id of the coordinator of a transactional id. Raises NotInTime."""
        return self._asked(
            lambda: self._first_answer(lambda address: coordinator_seen_by(address, transactional_id)), "a coordinator"
        )

    def wait_in_sync(self, seconds: float = IN_SYNC_S, partitions: Mapping[str, int] | None = None) -> None:
        """Wait until every running broker sees all replicas of every partition in the ISR. Raises NotInTime.

        `partitions` are topics that every broker must know, with their partition counts.
        """
        due = {(topic, index) for topic, count in (partitions or {}).items() for index in range(count)}

        def is_in_sync() -> bool:
            try:
                for broker in self._running():
                    views = partitions_seen_by(broker.address)
                    if not due <= {(view.topic, view.index) for view in views}:
                        return False
                    if not all(view.is_in_sync for view in views):
                        return False
            except BrokerUnreachable:
                return False
            return True

        if not wait_for(is_in_sync, seconds):
            raise NotInTime(f"not in sync within {seconds:.0f} s:\n{self.beliefs()}")

    def beliefs(self) -> str:
        """Return, for each running broker, the partitions that it does not see in sync."""
        lines = []
        for id_, broker in self.brokers.items():
            if broker.is_running:
                try:
                    missing = [view for view in partitions_seen_by(broker.address) if not view.is_in_sync]
                    lines.append(f"broker {id_}: {len(missing)} not in sync, among them {missing[:3]}")
                except BrokerUnreachable as silence:
                    lines.append(f"broker {id_}: {silence}")
        return "\n".join(lines)

    def check_alive(self) -> None:
        """Raise BrokerEnded where a broker has ended by itself."""
        for id_, broker in self.brokers.items():
            if broker.has_ended:
                raise BrokerEnded(f"broker {id_} ended by itself:\n{broker.last_words()}")

    def _are_known(self, ids: set[int]) -> bool:
        """Return whether every running broker sees all of `ids` alive."""
        try:
            return all(ids <= brokers_seen_by(broker.address) for broker in self._running())
        except BrokerUnreachable:
            return False

    def _running(self) -> list[LiveBroker]:
        self.check_alive()
        return [broker for broker in self.brokers.values() if broker.is_running]

    def _asked(self, ask: Callable[[], Answer | None], what: str) -> Answer:
        answers: list[Answer] = []

        def is_answered() -> bool:
            answer = ask()
            if answer is not None:
                answers.append(answer)
            return bool(answers)

        if not wait_for(is_answered, ASKING_S):
            raise NotInTime(f"{what} did not come within {ASKING_S:.0f} s:\n{self.beliefs()}")
        return answers[0]

    def _first_answer(self, ask: Callable[[str], Answer]) -> Answer | None:
        for broker in self._running():
            try:
                return ask(broker.address)
            except BrokerUnreachable:
                continue
        return None
