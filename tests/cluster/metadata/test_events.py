"""Log lines about metadata changes: the broker's own partitions and, on the controller, brokers, configs and topics."""

from typing import Any

import pytest
from metadata_scenario import NAME, TOPIC, MetadataScenario
from quorum_in_memory import MetadataLog
from structlog.testing import capture_logs

from cordwood.cluster.metadata.changes import Cause
from cordwood.cluster.metadata.commands import (
    AlterConfigs,
    BrokerId,
    Command,
    ConfigChange,
    DeleteTopic,
    Election,
    ResourceType,
    UnregisterBroker,
)
from cordwood.cluster.metadata.events import LINES_PER_CHANGE_MAX, MetadataEventLog
from cordwood.cluster.metadata.image import NO_LEADER


class LoggedMetadata(MetadataScenario):
    """A cluster's metadata and broker 1's log of it. `lines` are those of the last method called."""

    def __init__(self) -> None:
        self.log = MetadataLog()
        self.event_log = MetadataEventLog(self.log.voter(1), BrokerId(1))
        self.lines: list[Any] = []
        super().__init__()
        self.event_log.begin()

    def apply(self, *commands: Command) -> "LoggedMetadata":
        with capture_logs() as self.lines:
            for command in commands:
                old = self.image
                super().apply(command)
                self.event_log.follow(old, self.image)
        return self

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


@pytest.fixture
def logged() -> LoggedMetadata:
    return LoggedMetadata()


def test_a_partition_that_came_here_when_its_leader_failed(logged: LoggedMetadata) -> None:
    logged.create(2, 1, 3).fence(2)
    (line,) = logged.lines
    assert (line["event"], line["topic"], line["partition"], line["cause"]) == ("partition.led", NAME, 0, "failure")
    assert (line["isr"], line["leader_epoch"]) == ("1,3", logged.partition.leader_epoch)
    assert logged.event_log.elections == {Cause.FAILURE: 1}


def test_a_partition_that_came_here_when_its_leader_stopped(logged: LoggedMetadata) -> None:
    logged.create(2, 1, 3).stop(2)
    assert logged.event_log.elections == {Cause.SHUTDOWN: 1}


def test_a_partition_that_went_to_its_preferred_leader(logged: LoggedMetadata) -> None:
    logged.create(1, 2).fence(1)
    assert logged.partition.leader == 2
    logged.unfence(1).in_sync(1, 2).elect(Election.PREFERRED)
    assert logged.partition.leader == 1
    assert logged.event_log.elections == {Cause.CHOICE: 1}


def test_a_partition_that_had_no_leader_for_a_while(logged: LoggedMetadata) -> None:
    logged.create(1).fence(1)
    assert logged.partition.leader == NO_LEADER
    assert logged.event_log.leaderships_lost == 1
    logged.unfence(1)
    assert logged.event_log.elections == {Cause.RETURN: 1}


def test_an_unclean_election_is_a_warning(logged: LoggedMetadata) -> None:
    logged.create(2, 1).fence(1).unfence(1).fence(2)
    assert logged.partition.leader == NO_LEADER
    logged.elect(Election.UNCLEAN, 1)
    assert logged.event_log.elections == {Cause.UNCLEAN: 1}
    assert [(line["event"], line["log_level"]) for line in logged.lines] == [("partition.led", "warning")]


def test_a_leadership_that_went_elsewhere_is_logged_with_the_new_leader(logged: LoggedMetadata) -> None:
    logged.create(1, 2).stop(1)
    assert [(line["event"], line["leader"]) for line in logged.lines] == [("partition.led_no_more", 2)]
    assert logged.event_log.leaderships_lost == 1


def test_in_sync_sets_are_counted_by_the_leader(logged: LoggedMetadata) -> None:
    logged.create(1, 2, 3).in_sync(1, 2).in_sync(1, 2, 3)
    assert (logged.event_log.isr_shrinks, logged.event_log.isr_expansions) == (1, 1)
    logged.stop(1).in_sync(2)
    assert (logged.event_log.isr_shrinks, logged.event_log.isr_expansions) == (1, 1), "broker 2 leads now"


def test_many_partitions_at_once_are_one_line(logged: LoggedMetadata) -> None:
    logged.create(2, 1, partitions=LINES_PER_CHANGE_MAX + 1).fence(2)
    assert [(line["event"], line["partitions"]) for line in logged.lines] == [
        ("partitions.led", LINES_PER_CHANGE_MAX + 1)
    ]
    assert logged.event_log.elections == {Cause.FAILURE: LINES_PER_CHANGE_MAX + 1}


def test_a_broker_logs_that_it_is_fenced_and_unfenced(logged: LoggedMetadata) -> None:
    logged.fence(1)
    assert logged.events == ["broker.is_fenced"]
    logged.unfence(1)
    assert logged.events == ["broker.is_unfenced"]
    assert logged.event_log.fencings == 1
    logged.fence(2)
    assert logged.events == []


def test_the_controller_logs_brokers_that_come_and_go(logged: LoggedMetadata) -> None:
    logged.start(4)
    assert logged.events == []
    logged.log.elect(1)
    logged.start(4)
    assert [(line["event"], line["broker"], line["epoch"]) for line in logged.lines] == [
        ("broker.registered", 4, logged.broker(4).epoch)
    ]
    logged.apply(UnregisterBroker(BrokerId(4)))
    assert [(line["event"], line["broker"]) for line in logged.lines] == [("broker.unregistered", 4)]


def test_the_controller_logs_which_configs_changed_and_not_their_values(logged: LoggedMetadata) -> None:
    logged.log.elect(1)
    logged.apply(AlterConfigs(ResourceType.BROKER, "", (ConfigChange("log.retention.ms", None, "86400000"),)))
    assert [(line["event"], line["broker"], line["keys"]) for line in logged.lines] == [
        ("broker.configured", "all", "log.retention.ms")
    ]
    assert "86400000" not in str(logged.lines)


def test_only_the_controller_logs_topics(logged: LoggedMetadata) -> None:
    logged.create(2)
    assert logged.events == []
    logged.log.elect(1)
    logged.set_min_isr(2)
    assert [(line["event"], line["keys"]) for line in logged.lines] == [("topic.configured", "min.insync.replicas")]
    logged.apply(DeleteTopic(TOPIC))
    assert logged.events == ["topic.deleted"]
    logged.create(2, partitions=3)
    assert [(line["event"], line["partitions"]) for line in logged.lines] == [("topic.created", 3)]
    assert logged.event_log.controllerships == 1
