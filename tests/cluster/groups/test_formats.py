"""Records of `__consumer_offsets` equal Kafka's byte for byte, and malformed bytes are refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.exchange import SavedGroup, SavedMember
from cordwood.cluster.groups.formats import (
    GROUP_KEY,
    CommittedOffset,
    OffsetKey,
    decode_group,
    decode_offset,
    decode_offset_key,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.steps import at_once

texts = st.text(max_size=20)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.builds(CommittedOffset, int64s, int32s, texts, int64s)
members = st.builds(
    SavedMember, texts, st.none() | texts, texts, texts, int32s, int32s, st.binary(max_size=20), st.binary(max_size=20)
)
groups = st.builds(
    SavedGroup, texts, int32s, st.none() | texts, st.none() | texts, st.lists(members, max_size=3).map(tuple), int64s
)

ANNA = SavedMember("anna-1", "rack", "anna", "/127.0.0.1", 60_000, 10_000, b"sub", b"share")


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def content(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compact(data: bytes | str) -> bytes:
    encoded = data.encode() if isinstance(data, str) else data
    return bytes([len(encoded) + 1]) + encoded


def test_keys_are_kafkas() -> None:
    assert encode_offset_key(OffsetKey("g", "flights", 3)) == b"\x00\x01\x00\x01g\x00\x07flights\x00\x00\x00\x03"
    assert encode_group_key("g") == b"\x00\x02\x00\x01g"


def test_an_offset_is_kafkas_version_3() -> None:
    encoded = encode_offset(CommittedOffset(42, 7, "note", 1_700_000_000_000))
    assert encoded == struct.pack(">hqi", 3, 42, 7) + string("note") + struct.pack(">q", 1_700_000_000_000)


def test_a_group_is_kafkas_version_3() -> None:
    encoded = at_once(encode_group(SavedGroup("consumer", 5, "range", "anna-1", (ANNA,)), 1_700_000_000_000))
    expected = struct.pack(">h", 3) + string("consumer") + struct.pack(">i", 5) + string("range") + string("anna-1")
    expected += struct.pack(">qi", 1_700_000_000_000, 1)
    expected += string("anna-1") + string("rack") + string("anna") + string("/127.0.0.1")
    expected += struct.pack(">ii", 60_000, 10_000) + content(b"sub") + content(b"share")
    assert encoded == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (struct.pack(">hq", 0, 42) + string("m") + struct.pack(">q", 9), CommittedOffset(42, -1, "m", 9)),
        (struct.pack(">hq", 1, 42) + string("m") + struct.pack(">qq", 9, 99), CommittedOffset(42, -1, "m", 9)),
        (struct.pack(">hq", 2, 42) + string("m") + struct.pack(">q", 9), CommittedOffset(42, -1, "m", 9)),
        (
            struct.pack(">hqi", 4, 42, 7) + compact("m") + struct.pack(">q", 9) + b"\x01\x00\x10" + bytes(16),
            CommittedOffset(42, 7, "m", 9),
        ),
    ],
    ids=["version 0", "version 1", "version 2", "version 4, with a topic id"],
)
def test_offsets_of_other_kafka_versions_are_read(value: bytes, expected: CommittedOffset) -> None:
    assert decode_offset(value) == expected


def older_member(*, has_rebalance_timeout: bool) -> bytes:
    times = struct.pack(">ii", 60_000, 10_000) if has_rebalance_timeout else struct.pack(">i", 10_000)
    return string("anna-1") + string("anna") + string("/127.0.0.1") + times + content(b"sub") + content(b"share")


def flexible_member() -> bytes:
    names = b"".join(map(compact, ("anna-1", "rack", "anna", "/127.0.0.1")))
    return names + struct.pack(">ii", 60_000, 10_000) + compact(b"sub") + compact(b"share") + b"\x00"


@pytest.mark.parametrize("version", range(5))
def test_groups_of_other_kafka_versions_are_read(version: int) -> None:
    since = struct.pack(">q", 77)
    if version == 4:
        head = struct.pack(">h", 4) + compact("consumer") + struct.pack(">i", 5) + compact("range") + b"\x00"
        value = head + since + b"\x02" + flexible_member() + b"\x00"
    elif version == 3:
        value = at_once(encode_group(SavedGroup("consumer", 5, "range", None, (ANNA,)), 77))
    else:
        head = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 5) + string("range") + b"\xff\xff"
        member = older_member(has_rebalance_timeout=version >= 1)
        value = head + (since if version >= 2 else b"") + struct.pack(">i", 1) + member
    group = at_once(decode_group(value))
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("consumer", 5, "range", None)
    assert group.since_ms == (77 if version >= 2 else -1)
    (member_read,) = group.members
    assert member_read.instance_id == ("rack" if version >= 3 else None)
    assert member_read.rebalance_timeout_ms == (60_000 if version >= 1 else -1)
    assert (member_read.session_timeout_ms, member_read.assignment) == (10_000, b"share")


@pytest.mark.parametrize("version", [2, 3, 8, 11, 17])
def test_records_of_other_kinds_are_left_alone(version: int) -> None:
    assert decode_offset_key(struct.pack(">h", version) + b"anything") is None


@given(texts, texts, int32s)
def test_keys_round_trip(group_id: str, topic: str, partition: int) -> None:
    key = OffsetKey(group_id, topic, partition)
    assert decode_offset_key(encode_offset_key(key)) == key
    assert decode_offset_key(encode_group_key(group_id)) is None
    fields = FieldReader(encode_group_key(group_id))
    assert (fields.int16(), fields.string()) == (GROUP_KEY, group_id)


@given(offsets)
def test_offsets_round_trip(committed: CommittedOffset) -> None:
    assert decode_offset(encode_offset(committed)) == committed


@given(groups)
def test_groups_round_trip(group: SavedGroup) -> None:
    assert at_once(decode_group(at_once(encode_group(group, group.since_ms)))) == group


@given(st.binary(max_size=80), st.integers(-2, 6))
def test_bad_bytes_are_refused_as_such(data: bytes, version: int) -> None:
    for decode in (decode_offset_key, decode_offset, lambda raw: at_once(decode_group(raw))):
        for candidate in (data, struct.pack(">h", version) + data):
            try:
                decode(candidate)
            except CorruptBatch:
                continue
