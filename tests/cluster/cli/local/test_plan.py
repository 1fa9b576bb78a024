"""The plan of a local cluster: its brokers, voters and ports."""

from pathlib import Path

import pytest
from local_cluster import free_ports

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.local.directory import ClusterDirectory, LocalBroker
from cordwood.cluster.cli.local.plan import UpOptions, members_wanted


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return ClusterDirectory(tmp_path / "cluster")


def lay_out(directory: ClusterDirectory, wanted: UpOptions) -> list[LocalBroker]:
    """Plan a cluster and write its configuration."""
    members = members_wanted(directory, wanted)
    for member in members:
        directory.write(member)
    return members


def refusal(directory: ClusterDirectory, wanted: UpOptions) -> str:
    with pytest.raises(Failure) as refused:
        members_wanted(directory, wanted)
    assert refused.value.exit_code is ExitCode.USAGE
    return refused.value.sentence


def test_a_new_cluster_has_three_brokers_on_ports_in_a_row(directory: ClusterDirectory) -> None:
    members = members_wanted(directory, UpOptions(kafka_port=9092, http_port=8080))
    assert [(member.broker_id, member.kafka, member.settings.http_listen) for member in members] == [
        (1, "127.0.0.1:9092", "127.0.0.1:8080"),
        (2, "127.0.0.1:9093", "127.0.0.1:8081"),
        (3, "127.0.0.1:9094", "127.0.0.1:8082"),
    ]
    assert not directory.path.exists(), "planning writes nothing"
    first, *others = [member.settings for member in members]
    assert len(first.controller_quorum_voters) == 3
    assert len(first.controller_quorum_secret) >= 32
    assert all(other.controller_quorum_voters == first.controller_quorum_voters for other in others)
    assert all(other.controller_quorum_secret == first.controller_quorum_secret for other in others)


def test_voters_are_a_thousand_ports_above_where_these_are_free(directory: ClusterDirectory) -> None:
    port = free_ports(1)
    [member, _] = members_wanted(directory, UpOptions(brokers=2, kafka_port=port))
    assert dict(member.addresses())["controller.quorum.voters"] == f"127.0.0.1:{port + 1000}"
    [high, _] = members_wanted(directory, UpOptions(brokers=2, kafka_port=65000))
    assert dict(high.addresses())["controller.quorum.voters"].startswith("127.0.0.1:")


def test_more_brokers_than_voters_are_fine(directory: ClusterDirectory) -> None:
    members = members_wanted(directory, UpOptions(brokers=5))
    assert len(members) == 5
    assert all(len(member.settings.controller_quorum_voters) == 3 for member in members)
    assert len(members_wanted(directory, UpOptions(brokers=5, voters=5))[0].settings.controller_quorum_voters) == 5


def test_voters_that_were_given_are_taken(directory: ClusterDirectory) -> None:
    members = members_wanted(directory, UpOptions(overrides=("controller.quorum.voters=1@127.0.0.1:7001",)))
    assert all(member.settings.controller_quorum_voters == ("1@127.0.0.1:7001",) for member in members)


def test_what_is_there_is_kept_with_what_the_user_wrote(directory: ClusterDirectory) -> None:
    first, *_ = lay_out(directory, UpOptions())
    first.config.write_text(first.config.read_text() + "# mine\n'num.partitions' = 7\n")
    again = members_wanted(directory, UpOptions())
    assert [member.settings.num_partitions for member in again] == [7, 1, 1]
    assert again[0].settings.controller_quorum_secret == first.settings.controller_quorum_secret
    assert [
        m.settings.num_partitions for m in members_wanted(directory, UpOptions(overrides=("num.partitions=2",)))
    ] == [2] * 3


def test_a_cluster_grows_by_brokers_without_a_vote(directory: ClusterDirectory) -> None:
    lay_out(directory, UpOptions(kafka_port=9092, http_port=8080, overrides=("num.partitions=7",)))
    members = members_wanted(directory, UpOptions(brokers=5))
    assert [member.kafka for member in members[3:]] == ["127.0.0.1:9095", "127.0.0.1:9096"]
    assert [member.settings.http_listen for member in members[3:]] == ["127.0.0.1:8083", "127.0.0.1:8084"]
    assert all(member.settings.num_partitions == 7 for member in members)
    assert len({member.settings.log_dirs for member in members}) == 5
    assert {member.settings.controller_quorum_voters for member in members} == {
        members[0].settings.controller_quorum_voters
    }


def test_a_cluster_of_one_cannot_grow(directory: ClusterDirectory) -> None:
    lay_out(directory, UpOptions(brokers=1))
    assert "cannot be extended" in refusal(directory, UpOptions(brokers=3))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (UpOptions(brokers=2), "does not remove brokers"),
        (UpOptions(kafka_port=9192), "--port"),
        (UpOptions(http_port=9192), "--http-port"),
        (UpOptions(voters=1), "--voters"),
        (UpOptions(overrides=("num.partition=1",)), "num.partitions"),
    ],
)
def test_a_cluster_that_is_there_is_not_made_another(directory: ClusterDirectory, wanted: UpOptions, said: str) -> None:
    lay_out(directory, UpOptions())
    assert said in refusal(directory, wanted)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (UpOptions(voters=2), "1, 3 or 5"),
        (UpOptions(brokers=3, voters=5), "--brokers 3"),
        (UpOptions(kafka_port=65534), "--port"),
        (UpOptions(http_port=65534), "--http-port"),
        (UpOptions(overrides=("num.partitions",)), "key=value"),
    ],
)
def test_what_cannot_be_is_refused(directory: ClusterDirectory, wanted: UpOptions, said: str) -> None:
    assert said in refusal(directory, wanted)


def test_a_path_with_a_comma_is_refused(tmp_path: Path) -> None:
    assert "comma" in refusal(ClusterDirectory(tmp_path / "a,b"), UpOptions())


def test_a_configuration_that_makes_no_sense_is_named(directory: ClusterDirectory) -> None:
    first, *_ = lay_out(directory, UpOptions())
    first.config.write_text("num.partitions = 0\n")
    assert str(first.config) in refusal(directory, UpOptions())


def test_hosts_with_several_brokers_are_racks_and_share_out_the_voters(directory: ClusterDirectory) -> None:
    members = lay_out(directory, UpOptions(brokers=3, processes=2))
    racks = [(member.broker_id, member.settings.broker_rack) for member in members]
    assert racks == [(1, "host-1"), (2, "host-1"), (3, "host-2"), (4, "host-2"), (5, "host-3"), (6, "host-3")]
    assert [text.partition("@")[0] for text in members[0].settings.controller_quorum_voters] == ["1", "3", "5"]
    more = members_wanted(directory, UpOptions(brokers=4))
    assert [(member.broker_id, member.settings.broker_rack) for member in more[6:]] == [(7, "host-4"), (8, "host-4")]
    assert "has 3, and" in refusal(directory, UpOptions(brokers=2))
    assert "was created with 2" in refusal(directory, UpOptions(processes=3))
