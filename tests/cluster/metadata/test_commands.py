"""Encoding of metadata commands: round trips, and refusal of unknown commands."""

from uuid import UUID

import pytest

from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.command_codec import UnknownCommand, decode, encode
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
    Endpoint,
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
from cordwood.cluster.metadata.packed import pack

ONE, TWO = BrokerId(1), BrokerId(2)
READ_FLIGHTS = Acl(
    ResourcePattern(AclResource.TOPIC, "flights", Pattern.PREFIXED), "User:a", "*", AclOperation.READ, Permission.ALLOW
)

COMMANDS: list[Command] = [
    FormatCluster("cluster"),
    RegisterBroker(ONE, UUID(int=7), (Endpoint("PLAINTEXT", "host", 9092), Endpoint("LAN", "::1", 1)), "rack", ("a",)),
    RegisterBroker(ONE, UUID(int=7), ()),
    CreateTopic(UUID(int=8), "flights", ((ONE, TWO), (TWO, ONE)), (("retention.ms", "1"),)),
    DeleteTopic(UUID(int=8)),
    CreatePartitions(UUID(int=8), 2, ((ONE,),)),
    AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("a", None, "1"), ConfigChange("b", "2", None))),
    AlterConfigs(ResourceType.BROKER, "", ()),
    AllocateProducerIds(ONE, 1000, 1000),
    CreateAcls(((UUID(int=9), READ_FLIGHTS),)),
    DeleteAcls((UUID(int=9),)),
    FenceBroker(ONE, 5),
    UnfenceBroker(ONE, 5),
    BeginControlledShutdown(ONE, 5),
    AlterPartitions(ONE, 5, (IsrChange(UUID(int=8), 0, 3, 4, ((ONE, 5), (TWO, 6))),)),
    AlterPartitions(ONE, 5, (IsrChange(UUID(int=8), 0, 3, 4, ((ONE, 1 << 40), (TWO, -1))),)),
    ElectLeaders(Election.PREFERRED, ((UUID(int=8), 0), (UUID(int=8), 1))),
    ElectLeaders(Election.UNCLEAN, ((UUID(int=8), 0),), TWO),
    ReassignPartition(UUID(int=8), 1, (TWO, ONE)),
    ReassignPartition(UUID(int=8), 1, None),
    DropReplicas(ONE, 5, ((UUID(int=8), 0),), is_gone=True),
    UnregisterBroker(ONE),
    ReportUnflushed(ONE, 5, ((UUID(int=8), 0),)),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_is_read_as_it_was_written(command: Command) -> None:
    assert decode(encode(command)) == command


def test_the_numbers_never_change() -> None:
    """The numbers are in journals on users' disks."""
    kinds = {type(command): command.KIND for command in COMMANDS}
    assert kinds == {
        FormatCluster: 1,
        RegisterBroker: 2,
        CreateTopic: 3,
        DeleteTopic: 4,
        CreatePartitions: 5,
        AlterConfigs: 6,
        AllocateProducerIds: 7,
        CreateAcls: 8,
        DeleteAcls: 9,
        FenceBroker: 10,
        UnfenceBroker: 11,
        BeginControlledShutdown: 12,
        AlterPartitions: 13,
        ElectLeaders: 14,
        ReassignPartition: 15,
        DropReplicas: 16,
        UnregisterBroker: 17,
        ReportUnflushed: 18,
    }


def test_a_command_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnknownCommand, match="unknown command 99"):
        decode(pack([99, "what"]))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x91", pack(5), pack([]), pack([1]), pack([4, b"x", 2]), pack([6, 9]), pack([8, [[1, [0]]]])],
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownCommand):
        decode(data)


@pytest.mark.parametrize("replicas", [[1, True], [1, 1.0], [1, -1], [1, 1 << 31], [1, "1"], [1, [1]], 1, {1: 2}])
def test_lists_of_anything_but_broker_ids_are_no_assignments(replicas: object) -> None:
    with pytest.raises(UnknownCommand):
        decode(pack([CreatePartitions.KIND, UUID(int=8), 2, [[1], replicas]]))


def test_only_plain_values_can_be_written() -> None:
    with pytest.raises(TypeError, match="object has no place"):
        pack([object()])
