"""Records of consumer groups: bytes as Kafka 4 writes them, and round trips."""

import struct
from dataclasses import replace
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.consumer.formats import (
    CurrentAssignment,
    GroupEpoch,
    RecordKey,
    RecordType,
    ResolvedRegex,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_regex,
    encode_current,
    encode_group_epoch,
    encode_key,
    encode_member,
    encode_regex,
    read_key,
)
from cordwood.cluster.groups.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from cordwood.cluster.groups.consumer.reconciliation import united
from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.target_assignment import (
    decode_target,
    decode_target_epoch,
    encode_target,
    encode_target_epoch,
)
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.steps import at_once

TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ID = bytes(range(1, 17))

texts = st.text(max_size=20)
partitions = st.dictionaries(st.uuids(), st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=3)
classics = st.builds(
    ClassicProtocols,
    st.integers(0, 2**31 - 1),
    st.lists(st.builds(MemberProtocol, texts, st.binary(max_size=20)), min_size=1, max_size=3).map(tuple),
)


def with_epochs(member: ConsumerMember) -> ConsumerMember:
    """Return the member with an assignment epoch for each of its partitions."""
    revoking = {
        topic_id: indexes - member.assigned.get(topic_id, frozenset()) for topic_id, indexes in member.revoking.items()
    }
    revoking = {topic_id: indexes for topic_id, indexes in revoking.items() if indexes}
    epochs = {
        topic_id: {index: index % 7 for index in indexes}
        for topic_id, indexes in at_once(united(member.assigned, revoking)).items()
    }
    return replace(member, revoking=revoking, assignment_epochs=epochs)


members = st.builds(
    ConsumerMember,
    id=st.just("m"),
    instance_id=st.none() | texts,
    rack_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    topics=st.frozensets(texts, max_size=4),
    regex=texts,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    assignor=st.none() | texts,
    classic=st.none() | classics,
    epoch=st.integers(-2, 2**31 - 1),
    previous_epoch=st.integers(-2, 2**31 - 1),
    state=st.sampled_from(MemberState),
    assigned=partitions,
    revoking=partitions,
).map(with_epochs)


@pytest.mark.parametrize(
    ("kind", "of", "encoded"),
    [
        (RecordType.GROUP_METADATA, "", b"\x00\x03\x00\x01g"),
        (RecordType.MEMBER_METADATA, "m", b"\x00\x05\x00\x01g\x00\x01m"),
        (RecordType.TARGET_METADATA, "", b"\x00\x06\x00\x01g"),
        (RecordType.TARGET_MEMBER, "m", b"\x00\x07\x00\x01g\x00\x01m"),
        (RecordType.CURRENT_ASSIGNMENT, "m", b"\x00\x08\x00\x01g\x00\x01m"),
        (RecordType.REGULAR_EXPRESSION, "f.*", b"\x00\x10\x00\x01g\x00\x03f.*"),
    ],
)
def test_keys_are_kafkas(kind: RecordType, of: str, encoded: bytes) -> None:
    assert encode_key("g", RecordKey(kind, of)) == encoded
    fields = FieldReader(encoded)
    assert read_key(fields.int16(), fields) == ("g", RecordKey(kind, of))


def test_values_are_kafkas() -> None:
    assert encode_group_epoch(GroupEpoch(7, 0)) == b"\x00\x00\x00\x00\x00\x07\x00"
    # The metadata hash is the tagged field 0 (Kafka 4.1).
    assert encode_group_epoch(GroupEpoch(7, 9)) == b"\x00\x00\x00\x00\x00\x07\x01\x00\x08" + struct.pack(">q", 9)
    assert encode_target_epoch(7) == b"\x00\x00\x00\x00\x00\x07\x00"
    indexes = b"\x03\x00\x00\x00\x00\x00\x00\x00\x05"
    places = b"\x02" + ID + indexes + b"\x00"
    target = {TOPIC: frozenset({5, 0})}
    assert at_once(encode_target(target)) == b"\x00\x00" + places + b"\x00"
    member = ConsumerMember(
        "m",
        epoch=3,
        previous_epoch=2,
        state=MemberState.UNREVOKED_PARTITIONS,
        revoking=target,
        assignment_epochs={TOPIC: {5: 1, 0: 2}},
    )
    head = b"\x00\x00\x00\x00\x00\x03\x00\x00\x00\x02\x01" + b"\x01"
    # The assignment epochs are the tagged field 0 of a topic, in the order of its partitions (Kafka 4.3).
    epochs = b"\x01\x00\x09" + b"\x03\x00\x00\x00\x02\x00\x00\x00\x01"
    assert at_once(encode_current(member)) == head + b"\x02" + ID + indexes + epochs + b"\x00"
    # Those of records without them are the member's epoch.
    without = CurrentAssignment(3, 2, MemberState.UNREVOKED_PARTITIONS, {}, target, {TOPIC: {5: 3, 0: 3}})
    assert at_once(decode_current(head + places + b"\x00")) == without
    one_missing = b"\x01\x00\x05" + b"\x02\x00\x00\x00\x02"
    assert at_once(decode_current(head + b"\x02" + ID + indexes + one_missing + b"\x00")) == without
    assert at_once(decode_current(head + b"\x02" + ID + indexes + b"\x01\x00\x01\x00" + b"\x00")) == without
    topics = b"\x02\x08flights"
    regex = b"\x00\x00" + topics + struct.pack(">qq", 5, 6) + b"\x00"
    assert encode_regex(ResolvedRegex(frozenset({"flights"}), 5, 6)) == regex


def test_a_members_metadata_is_kafkas() -> None:
    member = ConsumerMember(
        "m",
        "i",
        None,
        "c",
        "/h",
        frozenset({"flights"}),
        "",
        1000,
        "uniform",
        ClassicProtocols(9, (MemberProtocol("range", b"x"),)),
    )
    head = b"\x00\x00" + b"\x02i" + b"\x00" + b"\x02c" + b"\x03/h" + b"\x02\x08flights" + b"\x01"
    classic = b"\x01" + struct.pack(">i", 9) + b"\x02" + b"\x06range" + b"\x02x" + b"\x00" + b"\x00"
    tail = struct.pack(">i", 1000) + b"\x08uniform" + b"\x01\x00" + bytes((len(classic),)) + classic
    assert encode_member(member) == head + tail


@given(members)
def test_members_round_trip(member: ConsumerMember) -> None:
    assert decode_member("m", encode_member(member)).has_same_metadata(member)
    place = CurrentAssignment(
        member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking, member.assignment_epochs
    )
    assert at_once(decode_current(at_once(encode_current(member)))) == place
    assert at_once(decode_target(at_once(encode_target(member.assigned)))) == member.assigned


@given(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.frozensets(texts, max_size=4))
def test_epochs_and_expressions_round_trip(epoch: int, number: int, topics: frozenset[str]) -> None:
    assert decode_group_epoch(encode_group_epoch(GroupEpoch(epoch, number))) == GroupEpoch(epoch, number)
    assert decode_target_epoch(encode_target_epoch(epoch)) == epoch
    resolved = ResolvedRegex(topics, epoch, number)
    assert decode_regex(encode_regex(resolved)) == resolved


@given(st.binary(max_size=60))
def test_bad_bytes_are_refused_as_such(data: bytes) -> None:
    decoders = (decode_group_epoch, decode_target_epoch, decode_regex, lambda value: decode_member("m", value))
    in_steps = (decode_target, decode_current)
    for decode in (*decoders, *(lambda value, steps=steps: at_once(steps(value)) for steps in in_steps)):
        for candidate in (data, b"\x00\x00" + data):
            try:
                decode(candidate)
            except CorruptBatch:
                continue
