"""Repeated metadata commands of every kind: they change nothing, and one that is too late is refused (Raft rule 10)."""

import random
from dataclasses import replace
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_scenario import DISKS, TOPIC, MetadataScenario

from cordwood.archive.manifest import ArchivedSegment, Upload
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.archive_commands import (
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas, QuotaAlteration
from cordwood.cluster.metadata.command_codec import encode
from cordwood.cluster.metadata.commands import (
    AddVoter,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterScramCredentials,
    AssignReplicasToDirs,
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
    PutDelegationToken,
    ReassignPartition,
    RegisterBroker,
    RemoveDelegationTokens,
    RemoveVoter,
    ReportUnflushed,
    ResourceType,
    ScramDeletion,
    ScramUpsertion,
    UnfenceBroker,
    UnregisterBroker,
    UpdateVoter,
)
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.cuts import CreateCut, CutPartition, DropCut
from cordwood.cluster.metadata.directory_changes import UNKNOWN
from cordwood.cluster.metadata.features import METADATA_VERSION, NEWEST_LEVEL, SUPPORTED, UpdateFeatures
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
ARCHIVED_IN = 4
"""Leader epoch of the commands of the archive."""


def commands() -> list[Command]:
    """Return commands of every kind, each undone by a later one if one can, so that a repetition would show."""
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
        DropReplicas(TWO, epochs[2], ((TOPIC, 0),), is_gone=False),
        AlterPartitions(ONE, epochs[1], (IsrChange(TOPIC, 0, 1, 3, isr),)),
        ReportUnflushed(THREE, epochs[3], ((TOPIC, 0),)),
        AlterPartitions(ONE, epochs[1], (IsrChange(TOPIC, 0, 2, 5, isr),)),
        FenceBroker(ONE, epochs[1]),
        UnfenceBroker(ONE, epochs[1]),
        AlterPartitions(TWO, epochs[2], (IsrChange(TOPIC, 0, 3, 7, isr),)),
        ElectLeaders(Election.PREFERRED, ((TOPIC, 0),)),
        BeginControlledShutdown(THREE, epochs[3]),
        FenceBroker(THREE, epochs[3]),
        UpdateFeatures(((METADATA_VERSION, NEWEST_LEVEL),), tuple(epochs.items())),
        *of_access(),
        *of_archive(),
        *of_voters(),
        CreateCut("cut", 5, -1, (CutPartition(TOPIC, 0, 0, 9),)),
        DropCut("cut", 5),
        AssignReplicasToDirs(ONE, epochs[1], ((TOPIC, 0, DISKS[0]),)),
        AssignReplicasToDirs(ONE, epochs[1], ((TOPIC, 0, UNKNOWN),)),
        FenceBroker(FOUR, epochs[4]),
        UnregisterBroker(FOUR),
        RegisterBroker(FOUR, UUID(int=9), (), None, DISKS, levels=SUPPORTED),
    ]


def of_access() -> list[Command]:
    """Return the commands of credentials, delegation tokens and quotas."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = ScramUpsertion("a", mechanism, b"salt", b"stored", b"server", 4096)
    quota = QuotaAlteration((("user", "a"),), "producer_byte_rate", 1.0)
    return [
        AlterScramCredentials((credential,)),
        AlterScramCredentials((), (ScramDeletion("a", mechanism),)),
        PutDelegationToken("token", "User:a", "User:a", (), 1, 9, 5),
        RemoveDelegationTokens((("token", 5),)),
        AlterClientQuotas((quota,)),
        AlterClientQuotas((replace(quota, value=None),)),
    ]


def of_archive() -> list[Command]:
    """Return the commands of the archive: of two uploads one is committed and removed, the other one is abandoned."""
    first, second = UUID(int=6), UUID(int=7)
    segment = ArchivedSegment(first, 0, 0, 7, 100, 0, 10, 0, 1, ARCHIVED_IN)
    return [
        BeginUpload(TOPIC, 0, ARCHIVED_IN, (Upload(first, 0, 7, 0), Upload(second, 7, 9, 0))),
        CommitUpload(TOPIC, 0, ARCHIVED_IN, (segment,), (), 1),
        GiveUpUploads(TOPIC, 0, ARCHIVED_IN, (second,)),
        RemoveArchived(TOPIC, 0, ARCHIVED_IN, 7, 9, 1),
        ForgetArchived(TOPIC, 0, (first, second)),
    ]


def of_voters() -> list[Command]:
    """Return the commands of the metadata quorum, with all voters, as its leader completes them."""
    first, second, moved = (ONE, DISKS[0], "host-1", 1), (TWO, DISKS[0], "host-2", 1), (TWO, DISKS[0], "host-2", 2)
    return [
        AddVoter(*second, (first, second)),
        UpdateVoter(*moved, (first, moved)),
        RemoveVoter(*moved[:2], (first,)),
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
    assert {type(command) for command in commands()} == set(get_args(Command))


def test_every_command_of_the_story_changes_something() -> None:
    story = MetadataScenario(4).create(1, 2, 3, min_isr=2)
    for command in commands():
        before = story.image
        after = story.apply(command).image
        assert replace(before, index=after.index) != after, command


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
