"""Metadata snapshots as files: the newest counts, a damaged one is reported, and images round-trip."""

import random
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import BrokerId, Endpoint
from cordwood.cluster.metadata.credentials import DelegationToken, ScramCredential, ScramMechanism
from cordwood.cluster.metadata.image import BrokerImage, Image, PartitionImage, TopicImage
from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage.errors import DamagedLog

ONE, TWO = BrokerId(1), BrokerId(2)
TOPIC = TopicImage(
    UUID(int=5),
    "flights",
    (
        PartitionImage((ONE, TWO), (ONE,), ONE, 3, 4, elr=(TWO,)),
        PartitionImage((TWO, ONE), (TWO,), TWO, adding=(TWO,), removing=(ONE,)),
    ),
    {"retention.ms": "5"},
)
PLAIN = TopicImage(UUID(int=6), "plain", (PartitionImage((ONE,), (ONE,), ONE),) * 3)
IMAGE = Image(
    index=42,
    cluster_id="cluster",
    brokers={
        ONE: BrokerImage(ONE, UUID(int=9), 7, (Endpoint("PLAINTEXT", "host", 9092),), "rack", ("a", "b"), False, True),
        TWO: BrokerImage(TWO, UUID(int=10), 8, ()),
    },
    topics_by_name={"flights": TOPIC, "plain": PLAIN},
    topics_by_id={TOPIC.id: TOPIC, PLAIN.id: PLAIN},
    broker_configs={"": {"flush.policy": "os"}},
    next_producer_id=2000,
    acls={
        UUID(int=7): Acl(
            ResourcePattern(AclResource.TOPIC, "flights", Pattern.LITERAL),
            "User:a",
            "*",
            AclOperation.READ,
            Permission.DENY,
        )
    },
    scram_credentials={("alice", ScramMechanism.SCRAM_SHA_512): ScramCredential(b"salt", b"stored", b"server", 4096)},
    delegation_tokens={"id": DelegationToken("id", "User:alice", "User:bob", ("User:carol",), 1, 3, 2)},
)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories("/m")
    return disk


def test_an_image_is_read_as_it_was_written() -> None:
    assert snapshot.decode(snapshot.encode(IMAGE)) == IMAGE
    assert snapshot.decode(snapshot.encode(Image())) == Image()


def test_an_image_without_credentials_is_one_of_the_fourth_version_which_older_brokers_read() -> None:
    plain = replace(IMAGE, scram_credentials={}, delegation_tokens={})
    assert unpack(snapshot.encode(plain))[0] == 4
    assert unpack(snapshot.encode(IMAGE))[0] == 5
    assert snapshot.decode(snapshot.encode(plain)) == plain


def test_an_image_of_the_first_version_has_no_acls() -> None:
    first = pack([1, 42, "cluster", 2000, [], [], {"": {"flush.policy": "os"}}])
    image = Image(index=42, cluster_id="cluster", broker_configs={"": {"flush.policy": "os"}}, next_producer_id=2000)
    assert snapshot.decode(first) == image


def test_before_the_third_version_a_broker_led_from_its_registration_on() -> None:
    broker = [1, UUID(int=9), 7, [["PLAINTEXT", "host", 9092]], "rack", ["a"]]
    topic = [UUID(int=5), "flights", [[[1, 2], [1], 1, 3, 4]], {}]
    image = snapshot.decode(pack([2, 42, "cluster", 2000, [broker], [topic], {}, []]))
    listeners = (Endpoint("PLAINTEXT", "host", 9092),)
    assert image.brokers[ONE] == BrokerImage(ONE, UUID(int=9), 7, listeners, "rack", ("a",), is_fenced=False)
    assert image.partition(UUID(int=5), 0) == PartitionImage((ONE, TWO), (ONE,), ONE, 3, 4)


def test_an_image_of_a_later_version_is_refused() -> None:
    later = snapshot.VERSION + 1
    with pytest.raises(snapshot.NewerVersion, match=f"version {later}"):
        snapshot.decode(pack([later]))
    for wrong in (0, -1, "9", None):
        with pytest.raises(ValueError, match="is no version"):
            snapshot.decode(pack([wrong]))


def test_partitions_that_are_alike_stay_one_object() -> None:
    first, second, third = snapshot.decode(snapshot.encode(IMAGE)).topics_by_name["plain"].partitions
    assert first is second is third


def test_without_snapshots_there_is_none(disk: SimulatedDisk) -> None:
    assert snapshot.read_newest(disk, "/m") is None


def test_the_newest_counts_and_the_others_go(disk: SimulatedDisk) -> None:
    for index in (9, 42, 10):
        snapshot.write(disk, "/m", Snapshot(replace(IMAGE, index=index), term=3))
    assert snapshot.read_newest(disk, "/m") == Snapshot(IMAGE, 3)
    snapshot.remove_all_but_newest(disk, "/m")
    assert disk.list_directory("/m") == ["00000000000000000042-0000000003.snapshot"]


def test_what_was_left_of_an_unfinished_one_goes_too(disk: SimulatedDisk) -> None:
    snapshot.write(disk, "/m", Snapshot(IMAGE))
    disk.open("/m/00000000000000000099-0000000000.snapshot.new", create=True)
    snapshot.remove_all_but_newest(disk, "/m")
    assert len(disk.list_directory("/m")) == 1


def test_a_damaged_one_is_named_and_no_older_one_taken(disk: SimulatedDisk) -> None:
    for index in (9, 42):
        snapshot.write(disk, "/m", Snapshot(replace(IMAGE, index=index)))
    disk.flip("/m/00000000000000000042-0000000000.snapshot", 60, 1)
    with pytest.raises(DamagedLog, match=r"42-0000000000\.snapshot is damaged at byte"):
        snapshot.read_newest(disk, "/m")


def test_one_under_a_wrong_name_is_refused(disk: SimulatedDisk) -> None:
    snapshot.write(disk, "/m", Snapshot(IMAGE))
    disk.rename("/m/00000000000000000042-0000000000.snapshot", "/m/00000000000000000043-0000000000.snapshot")
    with pytest.raises(DamagedLog, match="the file has the image of entry 42"):
        snapshot.read_newest(disk, "/m")
