"""The configuration of each broker of a local cluster."""

import pytest

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.local import layout
from cordwood.cluster.cli.local.layout import (
    Ports,
    checked,
    default_voters,
    given_rows,
    own_rows,
    parsed,
    render,
    shared_rows,
)

OWN = own_rows(2, Ports(9093, 8081), "/data/broker-2")


@pytest.mark.parametrize(("brokers", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (9, 3)])
def test_three_brokers_keep_the_metadata_where_there_are_as_many(brokers: int, voters: int) -> None:
    assert default_voters(brokers) == voters


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_what_is_acknowledged_is_on_two_disks_where_there_are_three(brokers: int, replicas: int, in_sync: int) -> None:
    settings = checked(OWN | shared_rows(brokers, {1: 10092}, "s"), ())
    assert (settings.default_replication_factor, settings.offsets_topic_replication_factor) == (replicas, replicas)
    assert settings.transaction_state_log_replication_factor == replicas
    assert settings.share_coordinator_state_topic_replication_factor == replicas
    assert settings.min_insync_replicas == in_sync


def test_a_new_group_waits_for_more_members_as_in_kafka_and_an_override_ends_that() -> None:
    rows = OWN | shared_rows(1, {}, "s")
    assert checked(rows, ()).group_initial_rebalance_delay_ms == 3000
    assert checked(rows, ["group.initial.rebalance.delay.ms=0"]).group_initial_rebalance_delay_ms == 0


def test_a_broker_that_is_alone_has_no_voters() -> None:
    assert checked(OWN | shared_rows(1, {1: 10092}, "s"), ()).controller_quorum_voters == ()
    several = checked(OWN | shared_rows(3, {1: 10092, 2: 10093, 3: 10094}, "s"), ())
    assert several.controller_quorum_voters == ("1@127.0.0.1:10092", "2@127.0.0.1:10093", "3@127.0.0.1:10094")
    assert several.controller_quorum_secret == "s"


def test_what_is_written_is_what_is_read() -> None:
    settings = checked(OWN | {"max.connections": "7", "max.connections.per.ip": "5"}, ['broker.rack=a"\\b é'])
    again = parsed(render(given_rows(settings)))
    assert again == settings
    assert (again.max_connections, again.broker_rack) == (7, 'a"\\b é')
    assert '"node.id" = 2' in render(given_rows(settings))


def test_an_override_goes_first() -> None:
    assert checked(OWN | {"num.partitions": "3"}, ["num.partitions=6"]).num_partitions == 6


@pytest.mark.parametrize("key", sorted(layout.OWN_KEYS))
def test_what_each_broker_has_of_its_own_is_not_set_for_all(key: str) -> None:
    with pytest.raises(Failure, match="differs for each broker") as refused:
        checked(OWN, [f"{key}=1"])
    assert refused.value.exit_code is ExitCode.USAGE


def test_a_mistake_is_named_with_its_file() -> None:
    with pytest.raises(Failure) as refused:
        parsed("node.id = 0.5\nnumber = 1\n", origin="there/server.toml")
    assert refused.value.sentence.count("there/server.toml: ") == 2
    assert refused.value.exit_code is ExitCode.USAGE
