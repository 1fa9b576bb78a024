"""Scripts of share groups (KIP-932): each function is one dialog with a broker of `consumer_group_scripts.SETTINGS`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from consumer_members import ConsumerMember, ShareMember, settle
from group_dialog import Dialog

SHARE_DESCRIBE, LIST_GROUPS, DELETE_GROUPS = 77, 16, 42
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
ONE = {"orders": (0,)}
LAG_S = 3.0


# Membership.


def share_members_have_all_partitions(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.shows_partitions = False
    first, second = ShareMember(dialog, "a"), ShareMember(dialog, "b")
    first.join_until_assigned("orders")
    settle(dialog, first)
    second.join_until_assigned("orders")
    settle(dialog, first, second)
    _describe(dialog)
    second.leave()
    settle(dialog, first)
    first.leave()
    _describe(dialog)


def a_share_member_needs_an_id_and_a_subscription(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ShareMember(dialog, "a")
    member.join("orders", member_id="")
    member.join("orders", group_id="")
    member.join("orders", rack_id="")
    member.join(subscribed_topic_names=None)
    member.join()


def share_epochs_below_minus_1_are_refused(dialog: Dialog) -> None:
    ShareMember(dialog, "a").join("orders", member_epoch=-2)


def share_groups_and_members_that_do_not_exist(dialog: Dialog) -> None:
    dialog.topic("orders")
    stranger = ShareMember(dialog, "stranger")
    stranger.heartbeat("has epoch 3 in no group", member_epoch=3)
    stranger.leave()
    ShareMember(dialog, "a").join_until_assigned("orders")
    stranger.heartbeat("has epoch 3", member_epoch=3)
    stranger.leave()


def a_larger_share_epoch_is_fenced(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders")
    settle(dialog, member)
    member.heartbeat("has a larger epoch", member_epoch=member.epoch + 1)
    member.beat()


def a_share_member_joins_again(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders")
    settle(dialog, member)
    member.join("orders")
    settle(dialog, member)


def a_share_subscription_changes(dialog: Dialog) -> None:
    dialog.topic("orders")
    dialog.topic("bills")
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders")
    settle(dialog, member)
    member.heartbeat("subscribes to bills", subscribed_topic_names=("bills" + dialog.suffix,))

    def has_bills(_answer: Any) -> bool:
        return [item.topic_id for item in member.assigned] == [dialog.id_of("bills")]

    with dialog.unnoted():
        dialog.eventually("a has bills", member.beat, has_bills)
    settle(dialog, member)


def the_share_group_is_full(dialog: Dialog) -> None:
    dialog.topic("orders")
    members = [ShareMember(dialog, name) for name in "abcde"]
    for member in members:
        member.heartbeat("joins", member_epoch=0, subscribed_topic_names=("orders" + dialog.suffix,))
        if member is not members[-1]:
            dialog.answers.pop()
    members[0].leave()


def a_silent_share_member_is_removed(dialog: Dialog) -> None:
    dialog.topic("orders")
    dialog.configure(share_session_timeout_ms="1000", share_heartbeat_interval_ms="200")
    member = ShareMember(dialog, "a")

    def is_often(answer: Any) -> bool:
        return bool(answer.heartbeat_interval.total_seconds() < 1)

    with dialog.unnoted():
        dialog.eventually("a joins and has the new interval", lambda: member.join("orders"), is_often)
    dialog.eventually("the group is empty", lambda: _describe(dialog), lambda answer: not answer.groups[0].members)
    member.beat()


def share_groups_are_described_listed_and_deleted(dialog: Dialog) -> None:
    dialog.topic("orders")
    _describe(dialog)
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders")
    _list(dialog)
    dialog.ask("DeleteGroups of a living group", DELETE_GROUPS, 2, groups_names=(dialog.group,))
    member.leave()
    _list(dialog)
    dialog.ask("DeleteGroups of an empty group", DELETE_GROUPS, 2, groups_names=(dialog.group,))
    _list(dialog)


def a_consumer_group_takes_no_share_members(dialog: Dialog) -> None:
    dialog.topic("orders")
    ConsumerMember(dialog, "c").join("orders")
    ShareMember(dialog, "a").join("orders")
    _describe(dialog)


# Fetches, acknowledgements and sessions.


def records_are_acquired_and_accepted(dialog: Dialog) -> None:
    member = _ready(dialog, records=10)
    member.fetch_until_acquired(ONE)
    member.fetch({}, wait_ms=300)
    member.acknowledge({"orders": {0: [(0, 9, [ACCEPT])]}})
    _lag(dialog, 0)
    member.fetch({}, wait_ms=300)


def acknowledgements_within_a_fetch(dialog: Dialog) -> None:
    member = _ready(dialog, records=4)
    member.fetch_until_acquired(ONE)
    member.fetch({}, {"orders": {0: [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (3, 3, [REJECT])]}}, wait_ms=1000)
    member.fetch({}, {"orders": {0: [(2, 2, [ACCEPT])]}}, wait_ms=300)
    _lag(dialog, 0)


def released_records_come_again(dialog: Dialog) -> None:
    first = _ready(dialog, records=6)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    first.acknowledge({"orders": {0: [(0, 5, [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT])]}})
    second.fetch_until_acquired(ONE)
    second.acknowledge({"orders": {0: [(1, 1, [ACCEPT])]}})
    second.acknowledge({"orders": {0: [(4, 4, [ACCEPT])]}})
    _lag(dialog, 0)


def a_record_is_archived_after_five_deliveries(dialog: Dialog) -> None:
    member = _ready(dialog, records=1)
    for _ in range(5):
        member.fetch_until_acquired(ONE)
        member.acknowledge({"orders": {0: [(0, 0, [RELEASE])]}})
    member.fetch({}, wait_ms=300)
    _lag(dialog, 0)


def the_delivery_limit_is_a_config(dialog: Dialog) -> None:
    dialog.configure(share_delivery_count_limit="2")
    member = _ready(dialog, records=2)
    for _ in range(2):
        member.fetch_until_acquired(ONE)
        member.acknowledge({"orders": {0: [(0, 1, [RELEASE])]}})
    member.fetch({}, wait_ms=300)
    _lag(dialog, 0)


def locks_end(dialog: Dialog) -> None:
    dialog.configure(share_record_lock_duration_ms="1000")
    first = _ready(dialog, records=2)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    second.fetch_until_acquired(ONE)
    first.acknowledge({"orders": {0: [(0, 1, [ACCEPT])]}})
    second.acknowledge({"orders": {0: [(0, 1, [ACCEPT])]}})


def locks_are_renewed(dialog: Dialog) -> None:
    member = _ready(dialog, records=2)
    member.fetch_until_acquired(ONE)
    member.acknowledge({"orders": {0: [(0, 1, [RENEW])]}}, is_renew_ack=True)
    member.acknowledge({"orders": {0: [(0, 1, [RENEW])]}})
    member.acknowledge({"orders": {0: [(0, 1, [ACCEPT])]}})
    member.acknowledge({"orders": {0: [(0, 1, [RENEW])]}}, is_renew_ack=True)


def locks_are_renewed_by_a_fetch(dialog: Dialog) -> None:
    member = _ready(dialog, records=2)
    member.fetch_until_acquired(ONE)
    acks = {"orders": {0: [(0, 1, [RENEW])]}}
    member.fetch({}, acks, is_renew_ack=True)
    nothing: dict[str, Any] = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    member.fetch({}, acks, wait_ms=0, is_renew_ack=True, **nothing)
    member.fetch({}, acks, wait_ms=300)


def renewal_is_switched_off(dialog: Dialog) -> None:
    dialog.configure(share_renew_acknowledge_enable="false")
    member = _ready(dialog, records=1)
    member.fetch_until_acquired(ONE)
    member.acknowledge({"orders": {0: [(0, 0, [RENEW])]}}, is_renew_ack=True)


def records_that_are_not_held(dialog: Dialog) -> None:
    first = _ready(dialog, records=4)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    second.fetch(ONE, wait_ms=300)
    second.acknowledge({"orders": {0: [(0, 3, [ACCEPT])]}})
    first.acknowledge({"orders": {0: [(0, 7, [ACCEPT])]}})
    first.acknowledge({"orders": {0: [(20, 21, [ACCEPT])]}})
    first.acknowledge({"orders": {0: [(0, 3, [ACCEPT])]}})
    first.acknowledge({"orders": {0: [(0, 3, [ACCEPT])]}})


def batches_that_make_no_sense(dialog: Dialog) -> None:
    member = _ready(dialog, records=6)
    member.fetch_until_acquired(ONE)
    for batches in (
        [(0, 1, [9])],
        [(0, 1, [-1])],
        [(0, 1, [])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(3, 2, [ACCEPT])],
        [(-2, -1, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
        [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
    ):
        member.acknowledge({"orders": {0: batches}})
    member.fetch({}, {"orders": {0: [(0, 1, [9])]}}, wait_ms=300)
    member.acknowledge({"orders": {0: [(0, 5, [ACCEPT])]}})


def a_refused_batch_changes_nothing(dialog: Dialog) -> None:
    member = _ready(dialog, records=4)
    member.fetch_until_acquired(ONE)
    member.acknowledge({"orders": {0: [(0, 1, [ACCEPT]), (2, 9, [ACCEPT])]}})
    member.acknowledge({"orders": {0: [(0, 3, [ACCEPT])]}})
    _lag(dialog, 0)


def session_epochs(dialog: Dialog) -> None:
    member = _ready(dialog, records=2)
    member.fetch({}, wait_ms=300, share_session_epoch=5)
    member.acknowledge({"orders": {0: [(0, 0, [ACCEPT])]}}, share_session_epoch=3)
    member.acknowledge({"orders": {0: [(0, 0, [ACCEPT])]}}, share_session_epoch=0)
    member.acknowledge({}, share_session_epoch=-1)
    member.fetch({}, share_session_epoch=-1, wait_ms=0)
    member.fetch_until_acquired(ONE)
    held = member.session_epoch
    member.fetch({}, wait_ms=300, share_session_epoch=held + 1)
    member.fetch({}, wait_ms=300, share_session_epoch=held - 1)
    member.acknowledge({"orders": {0: [(0, 0, [ACCEPT])]}}, share_session_epoch=held + 4)
    member.fetch({}, {"orders": {0: [(0, 0, [ACCEPT])]}}, wait_ms=300)


def acknowledgements_need_a_session(dialog: Dialog) -> None:
    member = _ready(dialog, records=1)
    member.fetch(ONE, {"orders": {0: [(0, 0, [ACCEPT])]}}, wait_ms=300)
    member.fetch({}, {"orders": {0: [(0, 0, [ACCEPT])]}}, wait_ms=300, share_session_epoch=-1)


def a_closed_session_releases_its_records(dialog: Dialog) -> None:
    first = _ready(dialog, records=4)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    first.acknowledge({"orders": {0: [(0, 1, [ACCEPT])]}}, share_session_epoch=-1)
    second.fetch_until_acquired(ONE)
    second.fetch({}, share_session_epoch=-1, wait_ms=0)
    first.fetch_until_acquired(ONE)
    first.acknowledge({"orders": {0: [(2, 3, [ACCEPT])]}})


def a_closed_connection_releases_its_records(dialog: Dialog) -> None:
    first = _ready(dialog, records=4)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    first.disconnect()
    second.fetch_until_acquired(ONE)


def a_session_begins_again(dialog: Dialog) -> None:
    member = _ready(dialog, records=3)
    member.fetch_until_acquired(ONE)
    member.session_epoch = 0
    member.fetch_until_acquired(ONE)


def partitions_leave_a_session(dialog: Dialog) -> None:
    dialog.topic("bills")
    member = _ready(dialog, 2, "bills")
    member.fetch_until_acquired({"orders": (0,), "bills": (0,)})
    forgotten = ({"topic_id": dialog.id_of("orders"), "partitions": (0,)},)
    member.fetch({}, wait_ms=300, forgotten_topics_data=forgotten)
    dialog.produce("orders", 2)
    member.fetch({}, wait_ms=300)
    member.acknowledge({"orders": {0: [(0, 1, [ACCEPT])]}})
    member.fetch(ONE, wait_ms=1000)


def topics_and_partitions_that_do_not_exist(dialog: Dialog) -> None:
    member = _ready(dialog, records=1)
    unknown = ({"topic_id": UUID(int=0xABC << 64 | 1 << 63), "partitions": ({"partition_index": 0},)},)
    member.fetch({}, wait_ms=300, topics=unknown)
    member.fetch({"orders": (7,)}, wait_ms=300)
    member.acknowledge({"orders": {7: [(0, 0, [ACCEPT])]}})
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": (ACCEPT,)}
    acks = {
        "topic_id": unknown[0]["topic_id"],
        "partitions": ({"partition_index": 0, "acknowledgement_batches": (batch,)},),
    }
    member.acknowledge({}, topics=(acks,))


def member_ids_of_fetches(dialog: Dialog) -> None:
    member = _ready(dialog, records=1)
    member.fetch(ONE, wait_ms=300, member_id="")
    member.fetch(ONE, wait_ms=300, member_id=None)
    member.fetch(ONE, wait_ms=300, member_id="m" * 37)
    member.acknowledge({"orders": {0: [(0, 0, [ACCEPT])]}}, member_id="")
    member.fetch(ONE, wait_ms=300, group_id=None)


def as_many_records_as_asked_for(dialog: Dialog) -> None:
    member = _ready(dialog, records=10)
    dialog.produce("orders", 10)
    dialog.produce("orders", 10)
    member.fetch_until_acquired(ONE, max_records=5)
    member.fetch({}, wait_ms=300, max_records=15)
    member.fetch({}, wait_ms=300, max_records=15)


def exactly_as_many_records_as_asked_for(dialog: Dialog) -> None:
    member = _ready(dialog, records=10)
    dialog.produce("orders", 10)
    member.fetch_until_acquired(ONE, max_records=5, share_acquire_mode=1)
    member.fetch({}, wait_ms=300, max_records=7, share_acquire_mode=1)
    member.fetch({}, wait_ms=300, max_records=20, share_acquire_mode=1)


def batches_of_acquired_records(dialog: Dialog) -> None:
    member = _ready(dialog, records=10)
    dialog.produce("orders", 10)
    member.fetch_until_acquired(ONE, batch_size=4)


def no_records_are_asked_for(dialog: Dialog) -> None:
    member = _ready(dialog, records=3)
    member.fetch_until_acquired(ONE)
    dialog.produce("orders", 3)
    member.fetch({}, wait_ms=300, max_records=0)
    member.fetch({}, wait_ms=300, max_records=-1)


def two_members_share_a_partition(dialog: Dialog) -> None:
    first = _ready(dialog, records=5)
    second = ShareMember(dialog, "b")
    first.fetch_until_acquired(ONE)
    dialog.produce("orders", 5)
    second.fetch_until_acquired(ONE)
    first.acknowledge({"orders": {0: [(0, 4, [RELEASE])]}})
    second.acknowledge({"orders": {0: [(5, 9, [ACCEPT])]}})
    _lag(dialog, 5)
    second.fetch_until_acquired(ONE)


def sessions_are_limited(dialog: Dialog) -> None:
    members = [_ready(dialog, records=1), *(ShareMember(dialog, name) for name in "bcde")]
    for member in members[:-1]:
        member.fetch(ONE, wait_ms=0)
        dialog.answers.pop()
    members[-1].fetch(ONE, wait_ms=0)
    members[0].fetch({}, share_session_epoch=-1, wait_ms=0)
    members[-1].fetch(ONE, wait_ms=0)
    dialog.answers.pop()


def latest_is_the_default(dialog: Dialog) -> None:
    dialog.topic("orders")
    dialog.produce("orders", 3)
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders")
    member.fetch(ONE, wait_ms=1000)
    dialog.produce("orders", 2)
    member.fetch_until_acquired(ONE)


def only_committed_records(dialog: Dialog) -> None:
    dialog.configure(share_isolation_level="read_committed")
    member = _ready(dialog, records=2)
    dialog.produce_in_transaction("orders", 3, commits=False)
    dialog.produce_in_transaction("orders", 3, commits=True)
    acquired = _until_offset(dialog, member, 8, frozenset({5, 9}))
    with dialog.unnoted():
        answer = member.acknowledge({"orders": {0: acquired}})
    dialog.note("a acknowledges all", answer)
    _lag(dialog, 0)


def uncommitted_records_too(dialog: Dialog) -> None:
    member = _ready(dialog, records=2)
    dialog.produce_in_transaction("orders", 3, commits=False)
    _until_offset(dialog, member, 4, frozenset({5}))


# Offsets of share groups.


def offsets_are_described_altered_and_deleted(dialog: Dialog) -> None:
    member = _ready(dialog, records=10)
    _alter(dialog, 7)
    dialog.ask("DeleteShareGroupOffsets of a living group", DELETE_OFFSETS, 0, **_one_topic(dialog))
    member.leave()
    _alter(dialog, 7)
    _describe_offsets(dialog)
    other = ShareMember(dialog, "b")
    other.join_until_assigned("orders")
    other.fetch_until_acquired(ONE)
    other.acknowledge({"orders": {0: [(7, 8, [ACCEPT])]}})
    _lag(dialog, 1)
    other.acknowledge({}, share_session_epoch=-1)
    other.leave()
    dialog.ask("DeleteShareGroupOffsets", DELETE_OFFSETS, 0, **_one_topic(dialog))
    _describe_offsets(dialog)


def offsets_of_no_share_group(dialog: Dialog) -> None:
    dialog.topic("orders")
    _describe_offsets(dialog)
    _alter(dialog, 2)
    dialog.ask("DeleteShareGroupOffsets", DELETE_OFFSETS, 0, **_one_topic(dialog))


def offsets_of_a_consumer_group_are_no_share_offsets(dialog: Dialog) -> None:
    dialog.topic("orders")
    ConsumerMember(dialog, "c").join("orders")
    _describe_offsets(dialog)
    _alter(dialog, 2)
    dialog.ask("DeleteShareGroupOffsets", DELETE_OFFSETS, 0, **_one_topic(dialog))


def _ready(dialog: Dialog, records: int, *further: str) -> ShareMember:
    """Return a member of a group that reads a topic of one partition, and further ones, from its first record."""
    dialog.topic("orders")
    dialog.configure(share_auto_offset_reset="earliest")
    dialog.produce("orders", records)
    member = ShareMember(dialog, "a")
    member.join_until_assigned("orders", *further)
    return member


def _until_offset(
    dialog: Dialog, member: ShareMember, last: int, markers: frozenset[int]
) -> list[tuple[int, int, Sequence[int]]]:
    """Fetch until this record is acquired, and note the offsets of all records. Return batches that accept them.

    Kafka acquires the markers of transactions as well.
    """
    found: list[tuple[int, int, Sequence[int]]] = []

    def has_last(answer: Any) -> bool:
        partitions = [partition for topic in answer.responses for partition in topic.partitions]
        acquired = [batch for partition in partitions for batch in partition.acquired_records]
        found.extend((batch.first_offset, batch.last_offset, (ACCEPT,)) for batch in acquired)
        return any(first <= last <= end for first, end, _ in found)

    with dialog.unnoted():
        dialog.eventually("acquired", lambda: member.fetch({} if member.session_epoch else ONE, wait_ms=500), has_last)
    offsets = {offset for first, end, _ in found for offset in range(first, end + 1)}
    dialog.answers.append(("acquired records", sorted(offsets - markers)))
    return sorted(found)


def _describe(dialog: Dialog) -> Any:
    return dialog.ask("ShareGroupDescribe", SHARE_DESCRIBE, 1, group_ids=(dialog.group,))


def _list(dialog: Dialog) -> None:
    answer = dialog.ask_quietly(LIST_GROUPS, 5, states_filter=(), types_filter=("share",))
    ours = [
        (found.protocol_type, found.group_state, found.group_type)
        for found in answer.groups
        if found.group_id == dialog.group
    ]
    dialog.answers.append(("ListGroups of share groups", [answer.error_code.name, ours]))


def _describe_offsets(dialog: Dialog) -> Any:
    topic = {"topic_name": "orders" + dialog.suffix, "partitions": (0,)}
    groups = ({"group_id": dialog.group, "topics": (topic,)},)
    return dialog.ask("DescribeShareGroupOffsets", DESCRIBE_OFFSETS, 1, groups=groups)


def _lag(dialog: Dialog, lag: int) -> None:
    """Note the lag, once it is as expected if it gets there: state is written after the answer."""
    found: list[int] = []

    def is_there(answer: Any) -> bool:
        topics = answer.groups[0].topics
        found.append(topics[0].partitions[0].lag if topics else -2)
        return found[-1] == lag

    with dialog.unnoted():
        dialog.eventually("lag", lambda: _describe_offsets(dialog), is_there, wait_s=LAG_S)
    dialog.answers.append(("lag", found[-1]))


def _alter(dialog: Dialog, offset: int) -> Any:
    topic = {
        "topic_name": "orders" + dialog.suffix,
        "partitions": ({"partition_index": 0, "start_offset": offset},),
    }
    title = f"AlterShareGroupOffsets to {offset}"
    return dialog.ask(title, ALTER_OFFSETS, 0, group_id=dialog.group, topics=(topic,))


def _one_topic(dialog: Dialog) -> dict[str, Any]:
    return {"group_id": dialog.group, "topics": ({"topic_name": "orders" + dialog.suffix},)}
