"""Repeated metadata commands of every kind: they change nothing, and one that is too late is refused (Raft rule 10)."""

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_scenario import DISKS, TOPIC, MetadataScenario

from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.command_codec import encode
from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    BeginControlledShutdown,
    BrokerId,
    Command,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    DropReplicas,
    Election,
    ElectLeaders,
    FenceBroker,
    FormatCluster,
    IsrChange,
    ReassignPartition,
    RegisterBroker,
    ReportUnflushed,
    ResourceType,
    UnfenceBroker,
    UnregisterBroker,
)
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.raft import entry
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.cluster.metadata.recent import CHUNK, WINDOW, RecentEntries, is_late
from cordwood.storage.steps import at_once

ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
ACL = Acl(
    ResourcePattern(AclResource.TOPIC, "flights", Pattern.LITERAL), "User:a", "*", AclOperation.READ, Permission.ALLOW
)
NEW = UUID(int=5)
BARRIER = entry.encode(b"nothing!", 0, b"")


def commands() -> list[Command]:
    """Return commands of every kind, each undone by a later one, so that a repetition would show."""
    story = MetadataScenario(4).create(1, 2, 3, min_isr=2)
    epochs = {broker: story.broker(broker).epoch for broker in (1, 2, 3, 4)}
    keys = (ConfigChange("retention.ms", None, "1"),), (ConfigChange("retention.ms", "1", None),)
    isr = tuple((broker, epochs[broker]) for broker in (ONE, TWO, THREE))
    return [
        FormatCluster("cluster"),
        CreateTopic(NEW, "planes", ((ONE, TWO),)),
        CreatePartitions(NEW, 1, ((TWO, THREE),)),
        DeleteTopic(NEW),
        AlterConfigs(ResourceType.TOPIC, "flights", keys[0]),
        AlterConfigs(ResourceType.TOPIC, "flights", keys[1]),
        AllocateProducerIds(ONE, 0, 1000),
        CreateAcls(((NEW, ACL),)),
        DeleteAcls((NEW,)),
        ReassignPartition(TOPIC, 0, (ONE, TWO, FOUR)),
        ReassignPartition(TOPIC, 0, None),
        BeginControlledShutdown(THREE, epochs[3]),
        FenceBroker(THREE, epochs[3]),
        UnfenceBroker(THREE, epochs[3]),
        DropReplicas(TWO, epochs[2], ((TOPIC, 0),), is_gone=False),
        ReportUnflushed(THREE, epochs[3], ((TOPIC, 0),)),
        AlterPartitions(ONE, epochs[1], (IsrChange(TOPIC, 0, 1, 4, isr),)),
        AlterPartitions(ONE, epochs[1], (IsrChange(TOPIC, 0, 2, 5, isr),)),
        ElectLeaders(Election.PREFERRED, ((TOPIC, 0),)),
        FenceBroker(FOUR, epochs[4]),
        UnregisterBroker(FOUR),
        RegisterBroker(FOUR, UUID(int=9), (), None, DISKS),
    ]


def begun() -> Machine:
    return Machine(MetadataScenario(4).create(1, 2, 3, min_isr=2).image, 1, random.Random(1))


def entries_of(machine: Machine) -> list[bytes]:
    rng = random.Random(2)
    return [entry.encode(rng.randbytes(8), machine.image.index, encode(command)) for command in commands()]


def applied(machine: Machine, entries: list[bytes]) -> Image:
    for row in entries:
        at_once(machine.apply([(row, machine.image.index + 1, 1)]))
    return replace(machine.image, index=0, recent=RecentEntries())


def test_every_kind_of_command_is_in_the_story() -> None:
    assert {command.KIND for command in commands()} == set(range(1, 19))


def test_an_entry_of_an_earlier_version_means_what_it_meant() -> None:
    create = b"earlier " + encode(CreateTopic(NEW, "planes", ((ONE,),)))
    assert entry.decode(create).after is None
    machine = begun()
    applied(machine, [create, b"its undo" + encode(DeleteTopic(NEW)), create])
    assert NEW in machine.image.topics_by_id


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_entries_that_arrive_again_change_nothing(data: st.DataObject) -> None:
    entries = entries_of(begun())
    twice, once = list(entries), list(entries)
    for at in data.draw(st.lists(st.integers(0, len(entries) - 1), min_size=1, max_size=8), label="repeated"):
        where = data.draw(st.integers(twice.index(entries[at]) + 1, len(twice)), label="where")
        twice.insert(where, entries[at])
        # Broker epochs are log indexes, so both logs need the same number of entries.
        once.insert(where, BARRIER)
    assert applied(begun(), twice) == applied(begun(), once)


@pytest.mark.parametrize("between", [1, CHUNK, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_an_entry_that_arrives_as_late_as_it_may_is_known_and_a_later_one_refused(between: int) -> None:
    machine = begun()
    create, _, delete = entries_of(machine)[1:4]
    applied(machine, [create, delete])
    rng, index = random.Random(3), machine.image.index
    nothing = encode(DeleteTopic(NEW))
    at_once(machine.apply((entry.encode(rng.randbytes(8), index, nothing), index + at, 1) for at in range(1, between)))
    at_once(machine.apply([(create, index + between, 1)]))
    assert NEW not in machine.image.topics_by_id


def test_what_is_remembered_is_bounded() -> None:
    recent = RecentEntries()
    for index in range(1, 3 * WINDOW, 3):
        recent = recent.having(index.to_bytes(8, "big"), index)
    assert WINDOW // 3 <= len(list(recent)) <= (WINDOW + 2 * CHUNK) // 3


@pytest.mark.parametrize(
    ("after", "index", "late"),
    [(5, 6, False), (5, 5 + WINDOW, False), (5, 6 + WINDOW, True), (5, 5, True), (9, 5, True)],
)
def test_when_an_entry_is_late(after: int, index: int, late: bool) -> None:
    assert is_late(after, index) is late
