"""Committed offsets in memory: visibility and expiration."""

from dataclasses import replace

import pytest
from group_scenario import GroupScenario
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.cluster.groups.offsets import Offsets, expired
from cordwood.storage.steps import at_once

KEY = OffsetKey("group", "flights", 0)
RETENTION_MS = 1_000


def at(offset: int, committed_ms: int = 0) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", committed_ms)


def seen(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {place: committed.offset for place, committed in offsets.of("group").items()}


def test_what_is_being_written_is_not_seen() -> None:
    offsets = Offsets()
    sequence = offsets.begin({KEY: at(5)})
    assert seen(offsets) == {}
    assert offsets.newest(KEY) == at(5)
    offsets.settle(sequence, {KEY: at(5)})
    assert seen(offsets) == {("flights", 0): 5}


def test_what_could_not_be_written_is_as_if_it_had_not_been_asked() -> None:
    offsets = Offsets()
    offsets.put(KEY, at(1))
    offsets.abandon(offsets.begin({KEY: at(5)}), {KEY: at(5)})
    assert seen(offsets) == {("flights", 0): 1}
    assert offsets.newest(KEY) == at(1)


def test_a_write_that_fails_takes_no_later_one_with_it() -> None:
    offsets = Offsets()
    first, second = offsets.begin({KEY: at(5)}), offsets.begin({KEY: at(6)})
    offsets.abandon(first, {KEY: at(5)})
    assert offsets.newest(KEY) == at(6)
    offsets.settle(second, {KEY: at(6)})
    assert seen(offsets) == {("flights", 0): 6}


def test_an_offset_never_goes_back_to_an_older_write() -> None:
    offsets = Offsets()
    first, second = offsets.begin({KEY: at(5)}), offsets.begin({KEY: at(6)})
    offsets.settle(second, {KEY: at(6)})
    offsets.settle(first, {KEY: at(5)})
    assert seen(offsets) == {("flights", 0): 6}


def test_a_commit_that_was_appended_after_those_of_a_transaction_stays() -> None:
    for ends_first in (True, False):
        offsets = Offsets()
        offsets.write_pending(7, {KEY: at(5)})
        later = offsets.begin({KEY: at(6)})
        if ends_first:
            at_once(offsets.end_transaction(7, is_commit=True))
        offsets.settle(later, {KEY: at(6)})
        at_once(offsets.end_transaction(7, is_commit=True))
        assert seen(offsets) == {("flights", 0): 6}


def test_a_group_without_offsets_takes_no_room() -> None:
    offsets = Offsets()
    offsets.put(KEY, at(5))
    offsets.put(KEY, None)
    assert list(offsets.live_keys()) == []
    assert list(offsets.keys_of("group")) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 9)), max_size=20), st.randoms())
def test_in_whatever_order_writes_end_the_newest_counts(writes: list[tuple[int, int | None]], rng: object) -> None:
    offsets, under_way, expected = Offsets(), [], {}
    for partition, offset in writes:
        key, committed = OffsetKey("group", "flights", partition), None if offset is None else at(offset)
        under_way.append((offsets.begin({key: committed}), {key: committed}))
        expected["flights", partition] = offset
    rng.shuffle(under_way)  # type: ignore[attr-defined]
    for sequence, changes in under_way:
        offsets.settle(sequence, changes)
    assert seen(offsets) == {place: offset for place, offset in expected.items() if offset is not None}


def expired_at(group: GroupScenario, now_ms: int, **committed_ms: int) -> list[str]:
    held = {(topic, 0): at(1, ms) for topic, ms in committed_ms.items()}
    return [key.topic for key in expired(group.group, held.items(), now_ms, RETENTION_MS)]


def test_offsets_of_consumers_without_a_group_expire_after_their_last_commit(group: GroupScenario) -> None:
    assert expired_at(group, 1_999, flights=1_000) == []
    assert expired_at(group, 2_000, flights=1_000, planes=1_001) == ["flights"]


def test_offsets_of_an_empty_group_expire_together_once_it_has_been_empty_for_long(group: GroupScenario) -> None:
    group.stabilize("anna").leave("anna")
    group.group.emptied_ms = 5_000
    assert expired_at(group, 5_999, flights=0) == []
    assert expired_at(group, 6_000, flights=0, planes=5_500) == ["flights", "planes"]


def test_where_it_is_not_known_since_when_a_group_is_empty_its_commits_count(group: GroupScenario) -> None:
    group.stabilize("anna").leave("anna")
    assert group.group.emptied_ms is None
    assert expired_at(group, 2_000, flights=1_000, planes=1_001) == ["flights"]


@pytest.mark.parametrize(("since_ms", "expires_ms"), [(-1, 2_000), (0, 1_000), (5_000, 6_000)])
def test_a_restored_group_is_empty_since_the_time_of_its_record(
    group: GroupScenario, since_ms: int, expires_ms: int
) -> None:
    saved = group.stabilize("anna").stored[-1].group
    group.restart_broker(replace(saved, members=(), leader=None, since_ms=since_ms))
    assert expired_at(group, expires_ms - 1, flights=1_000) == []
    assert expired_at(group, expires_ms, flights=1_000) == ["flights"]


def test_of_a_stable_group_only_offsets_of_topics_that_it_does_not_read_expire(group: GroupScenario) -> None:
    flights = b"\x00\x00\x00\x00\x00\x01\x00\x07flights"
    group.stabilize("anna", protocols=(MemberProtocol("range", flights),))
    assert expired_at(group, 10_000, flights=0, planes=0) == ["planes"]
    group.join("ben")
    assert expired_at(group, 10_000, flights=0, planes=0) == []


def test_nothing_expires_while_it_is_not_known_what_is_read(group: GroupScenario) -> None:
    group.stabilize("anna")
    assert expired_at(group, 10_000, flights=0) == []
