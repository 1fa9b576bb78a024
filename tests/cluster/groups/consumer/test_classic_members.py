"""Members with the classic protocol in a consumer group, and the conversion of groups both ways."""

import struct
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.consumer.conversion import members_of_classic
from cordwood.cluster.groups.consumer.embedded import PartitionsByName, encode_assignment, read_assignment
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.consumer.state import ConsumerState
from cordwood.cluster.groups.exchange import (
    Join,
    JoinReply,
    Leaver,
    MemberProtocol,
    RequestId,
    SavedGroup,
    SavedMember,
    Sync,
    SyncReply,
)
from cordwood.cluster.groups.settings import MigrationPolicy
from cordwood.storage.steps import at_once

FLIGHTS = [("flights", 0)]
_numbers = count(1_000_000)


def subscription(owned: PartitionsByName, *topics: str) -> bytes:
    """Return a subscription of version 1."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    head = struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)
    return head + at_once(encode_assignment(0, owned))[2:-4]


def join(
    group: ConsumerGroupScenario, member_id: str, owned: PartitionsByName | None = None, **changes: Any
) -> JoinReply:
    """Send JoinGroup of a classic member, as a cooperative consumer of `flights`."""
    protocols = (MemberProtocol("cooperative-sticky", subscription(owned or {}, "flights")),)
    request = replace(Join(member_id, "consumer", protocols, 10_000, 20_000, client_id="old"), **changes)
    request_id = RequestId(next(_numbers))
    group.consumers.join(request, request_id, f"new-{request_id}", group.now_ms)
    group.perform()
    reply = group.replies[request_id]
    assert isinstance(reply, JoinReply)
    return reply


def sync(group: ConsumerGroupScenario, member_id: str, generation: int, **changes: Any) -> SyncReply:
    request_id = RequestId(next(_numbers))
    group.consumers.sync(replace(Sync(member_id, generation), **changes), request_id, group.now_ms)
    group.perform()
    reply = group.replies[request_id]
    assert isinstance(reply, SyncReply)
    return reply


def assigned(reply: SyncReply) -> int:
    assert reply.code is ErrorCode.none
    return len(at_once(read_assignment(reply.assignment)).get("flights", ()))


def beat(group: ConsumerGroupScenario, member_id: str, generation: int) -> ErrorCode:
    return group.consumers.heartbeat(member_id, None, generation, group.now_ms)


def classic_group(group: ConsumerGroupScenario, *members: str, **fields: Any) -> ClassicGroup:
    """Return a stable classic group in generation 5, of which the first member has everything."""
    group.context.topics()
    everything = at_once(encode_assignment(1, {"flights": frozenset(range(6))}))
    saved = [
        SavedMember(
            name,
            None,
            "old",
            "/h",
            20_000,
            10_000,
            subscription({}, "flights"),
            everything if name == members[0] else b"",
        )
        for name in members
    ]
    record = SavedGroup("consumer", 5, "cooperative-sticky", members[0], tuple(saved))
    made = at_once(ClassicGroup.restore("group", replace(record, **fields), group.context.settings))
    made.begin_sessions(group.now_ms)
    return made


def upgraded(group: ConsumerGroupScenario, *members: str) -> ConsumerGroup:
    made = ConsumerGroup("group", group.context)
    classic = classic_group(group, *members)
    members = at_once(members_of_classic(classic, group.context.topics()))
    at_once(made.adopt(members, classic.generation))
    made.begin_sessions(group.now_ms)
    group.group = made
    return made


@pytest.fixture
def group() -> ConsumerGroupScenario:
    return ConsumerGroupScenario()


def test_a_classic_member_gets_its_id_first(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    first = join(group, "")
    assert first.code is ErrorCode.member_id_required
    assert join(group, first.member_id).code is ErrorCode.none


def test_a_classic_member_joins_and_shares(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    reply = join(group, "", must_know_id=False)
    assert (reply.code, reply.generation, reply.protocol) == (ErrorCode.none, 2, "cooperative-sticky")
    assert reply.members == ()
    assert assigned(sync(group, reply.member_id, 2)) == 0
    assert beat(group, reply.member_id, 2) is ErrorCode.none, "the partitions are not free yet"
    group.settle()
    assert group.counts() == {"anna": 3}
    assert beat(group, reply.member_id, 2) is ErrorCode.rebalance_in_progress
    again = join(group, reply.member_id)
    assert again.generation == 2
    assert assigned(sync(group, reply.member_id, 2)) == 3
    assert beat(group, reply.member_id, 2) is ErrorCode.none
    assert group.consumers.state is ConsumerState.STABLE


def test_a_classic_group_is_upgraded_member_by_member(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1")
    group.join("anna")
    assert group.clients["anna"].epoch == 6
    assert group.counts() == {"anna": 0}
    # The classic member revokes first: it joins with all that it has, and gets the rest to keep.
    assert beat(group, "c1", 5) is ErrorCode.rebalance_in_progress
    everything = {"flights": frozenset(range(6))}
    assert join(group, "c1", everything).generation == 5
    reply = sync(group, "c1", 5)
    assert assigned(reply) == 3
    assert beat(group, "c1", 5) is ErrorCode.rebalance_in_progress
    assert join(group, "c1", at_once(read_assignment(reply.assignment))).generation == 6
    assert assigned(sync(group, "c1", 6)) == 3
    group.settle()
    assert group.counts() == {"anna": 3}
    assert group.consumers.state is ConsumerState.STABLE


def test_an_upgraded_group_survives_a_failover(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1", "c2")
    group.join("anna")
    group.reload()
    assert group.consumers.members.classic_count == 2
    assert beat(group, "c1", 5) is ErrorCode.rebalance_in_progress


def test_the_last_new_member_leaves_a_classic_group(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1", "c2")
    group.join("anna")
    reply = group.leave("anna")
    assert reply.code is ErrorCode.none
    classic = group.group
    assert isinstance(classic, ClassicGroup)
    assert (classic.state, classic.generation) == (State.PREPARING_REBALANCE, 5)
    kept = {member.id: at_once(read_assignment(member.assignment)) for member in classic.members}
    assert {member_id: len(partitions["flights"]) for member_id, partitions in kept.items()} == {"c1": 2, "c2": 2}
    assert {int.from_bytes(key[:2], "big") for key in group.log} <= {2}
    assert classic.heartbeat("c1", None, 5, group.now_ms) is ErrorCode.rebalance_in_progress
    assert classic.check_commit("c1", None, 5, group.now_ms, ()) is ErrorCode.none


def test_an_expiry_downgrades_too(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1")
    group.join("anna")
    for _ in range(10):
        group.now_ms += 5_000
        if isinstance(group.group, ConsumerGroup):
            beat(group, "c1", 5)
            group.group.tick(group.now_ms)
            group.perform()
            if isinstance(group.group, ConsumerGroup):
                join(group, "c1")
    assert isinstance(group.group, ClassicGroup)


def test_downgrades_can_be_disabled() -> None:
    group = ConsumerGroupScenario(consumer_migration=MigrationPolicy.UPGRADE)
    upgraded(group, "c1")
    group.join("anna")
    group.leave("anna")
    assert isinstance(group.group, ConsumerGroup)


def test_a_silent_classic_member_expires(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1")
    group.join("anna")
    group.pass_time(10_001, "anna")
    assert "c1" not in group.consumers.members.by_id
    group.settle()
    assert group.counts() == {"anna": 6}


def test_a_classic_member_that_does_not_rejoin_is_removed(group: ConsumerGroupScenario) -> None:
    upgraded(group, "c1")
    group.join("anna")
    for _ in range(5):
        beat(group, "c1", 5)
        group.pass_time(5_000, "anna")
    assert "c1" not in group.consumers.members.by_id


def test_classic_requests_are_checked(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    assert beat(group, "stranger", 1) is ErrorCode.unknown_member_id
    assert beat(group, "id-anna", 1) is ErrorCode.unknown_member_id, "it uses the other protocol"
    member_id = join(group, "", must_know_id=False).member_id
    assert beat(group, member_id, 9) is ErrorCode.illegal_generation
    assert sync(group, member_id, 9).code is ErrorCode.illegal_generation
    assert sync(group, member_id, 2, protocol="range").code is ErrorCode.inconsistent_group_protocol
    assert join(group, "", protocol_type="connect").code is ErrorCode.inconsistent_group_protocol
    bad = (MemberProtocol("cooperative-sticky", b"\x00"),)
    assert join(group, "new", protocols=bad).code is ErrorCode.inconsistent_group_protocol
    other = (MemberProtocol("mine", subscription({}, "flights")),)
    assert join(group, "", protocols=other).code is ErrorCode.inconsistent_group_protocol
    assert group.consumers.check_commit(member_id, None, 2, 0, FLIGHTS) is ErrorCode.none
    assert group.consumers.check_commit(member_id, None, 1, 0, FLIGHTS) is ErrorCode.illegal_generation


def test_classic_members_leave(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    member_id = join(group, "", must_know_id=False).member_id
    leavers = [Leaver(member_id), Leaver("id-anna"), Leaver("stranger")]
    codes = group.consumers.leave(leavers, group.now_ms)
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id]
    group.perform()
    group.settle()
    assert group.counts() == {"anna": 6}


def test_a_partition_that_two_classic_members_have_stays_with_the_first(group: ConsumerGroupScenario) -> None:
    everything = at_once(encode_assignment(1, {"flights": frozenset(range(6))}))
    saved = tuple(
        SavedMember(name, None, "old", "/h", 20_000, 10_000, subscription({}, "flights"), everything)
        for name in ("c1", "c2")
    )
    members = at_once(members_of_classic(classic_group(group, "c1", "c2", members=saved), group.context.topics()))
    assert [len(member.assigned) for member in members] == [1, 0]


def test_joining_an_empty_consumer_group_makes_a_classic_one(group: ConsumerGroupScenario) -> None:
    group.join("anna")
    group.leave("anna")
    request_id = RequestId(1)
    protocols = (MemberProtocol("range", subscription({}, "flights")),)
    group.consumers.join(Join("", "consumer", protocols, 10_000, 20_000), request_id, "c1", group.now_ms)
    group.perform()
    assert isinstance(group.group, ClassicGroup)
    assert group.log == {}
