"""Scripts of consumer groups (KIP-848): each function is one dialog with a broker of default settings and SETTINGS."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from consumer_members import ConsumerMember, ShareMember, settle
from group_dialog import Dialog
from kio.schema.errors import ErrorCode

CONSUMER_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 69, 15, 16, 42, 47
JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP = 11, 14, 12, 13
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "group_consumer_max_size": "4",
        "group_consumer_min_session_timeout_ms": "1000",
        "group_consumer_min_heartbeat_interval_ms": "200",
        "group_share_max_size": "4",
        "group_share_min_session_timeout_ms": "1000",
        "group_share_min_heartbeat_interval_ms": "200",
        "group_share_min_record_lock_duration_ms": "1000",
        "group_share_max_share_sessions": "4",
        "group_initial_rebalance_delay_ms": "0",
        "group_min_session_timeout_ms": "1000",
    }
)


def a_member_alone_gets_all_partitions(dialog: Dialog) -> None:
    dialog.topic("orders", 4)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    member.beat()
    member.confirm()
    member.beat()
    _describe(dialog)


def an_assignment_is_sent_until_it_is_confirmed(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    member.own({})
    member.own({"orders": (0,)})
    member.own({"orders": (0, 1)})
    member.own({"orders": (0, 1)})
    member.own({"orders": (1,)})


def version_0_generates_a_member_id(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a", version=0)
    member.join("orders", member_id="")
    member.beat()
    member.leave()


def version_1_needs_a_member_id(dialog: Dialog) -> None:
    ConsumerMember(dialog, "a").join("orders", member_id="")


def a_join_needs_a_subscription(dialog: Dialog) -> None:
    member = ConsumerMember(dialog, "a")
    member.join(subscribed_topic_names=None)
    member.join()


def a_join_needs_a_rebalance_timeout(dialog: Dialog) -> None:
    member = ConsumerMember(dialog, "a")
    member.join("orders", rebalance_timeout=timedelta(milliseconds=-1))
    member.join("orders", rebalance_timeout=timedelta(0))


def a_join_lists_owned_partitions_and_has_none(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders", topic_partitions=None)
    owned = ({"topic_id": dialog.id_of("orders"), "partitions": (0,)},)
    member.heartbeat(
        "joins with an owned partition",
        member_epoch=0,
        rebalance_timeout=timedelta(seconds=60),
        subscribed_topic_names=("orders" + dialog.suffix,),
        topic_partitions=owned,
    )


def empty_names_are_refused(dialog: Dialog) -> None:
    member = ConsumerMember(dialog, "a")
    member.join("orders", group_id="")
    member.join("orders", group_id=" ")
    member.join("orders", instance_id="")
    member.join("orders", rack_id="")
    member.join("orders", server_assignor="")


def epochs_below_minus_2_are_refused(dialog: Dialog) -> None:
    member = ConsumerMember(dialog, "a")
    member.join("orders", member_epoch=-3)
    member.heartbeat("joins with epoch -2 and no instance", member_epoch=-2)


def groups_and_members_that_do_not_exist(dialog: Dialog) -> None:
    dialog.topic("orders")
    stranger = ConsumerMember(dialog, "stranger")
    stranger.heartbeat("has epoch 3 in no group", member_epoch=3)
    stranger.leave()
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    stranger.heartbeat("has epoch 3", member_epoch=3)
    stranger.leave()
    stranger.heartbeat("leaves as a static member", member_epoch=-2, instance_id="i")


def a_larger_epoch_is_fenced(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    member.heartbeat("has a larger epoch", member_epoch=member.epoch + 1)
    member.beat()


def the_previous_epoch_counts_once_more(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member, other = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    member.join("orders")
    settle(dialog, member)
    before = member.epoch
    dialog.shows_partitions = False
    other.join("orders")
    settle(dialog, member, other)
    owned = member.assigned
    last = member.epoch
    if last - before == 1:
        topic_partitions = [{"topic_id": item.topic_id, "partitions": item.partitions} for item in owned]
        member.heartbeat("repeats its last epoch", member_epoch=before, topic_partitions=topic_partitions)
        member.heartbeat("repeats it without partitions", member_epoch=before)
        both = [{"topic_id": dialog.id_of("orders"), "partitions": (0, 1)}]
        member.heartbeat("repeats it and owns all", member_epoch=before, topic_partitions=both)


def an_epoch_before_the_previous_one_is_fenced(dialog: Dialog) -> None:
    for topic in ("orders", "bills", "notes"):
        dialog.topic(topic)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    first = member.epoch
    for topics in (("orders", "bills"), ("orders", "bills", "notes")):
        member.heartbeat(
            f"subscribes to {topics}", subscribed_topic_names=tuple(topic + dialog.suffix for topic in topics)
        )
        settle(dialog, member)
    member.heartbeat("has its first epoch", member_epoch=first, topic_partitions=())


def a_member_that_left_is_unknown(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    epoch = member.epoch
    member.leave()
    member.heartbeat("goes on", member_epoch=epoch)
    member.leave()
    _describe(dialog)
    member.join("orders")


def a_join_again_with_epoch_0(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    member.join("orders")
    settle(dialog, member)


def assignors(dialog: Dialog) -> None:
    dialog.topic("orders", 3)
    dialog.topic("bills", 3)
    first, second = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    first.join("orders", server_assignor="unheard-of")
    first.join("orders", "bills", server_assignor="range")
    settle(dialog, first)
    second.join("orders", "bills", server_assignor="range")
    settle(dialog, first, second)
    _describe(dialog)
    second.beat(server_assignor="unheard-of")


def the_assignor_that_most_members_name(dialog: Dialog) -> None:
    dialog.topic("orders", 3)
    members = [ConsumerMember(dialog, name) for name in "abc"]
    for member, assignor in zip(members, ("uniform", "range", "range"), strict=True):
        member.join("orders", server_assignor=assignor)
    settle(dialog, *members)
    _describe(dialog)


def range_gives_each_member_neighbours(dialog: Dialog) -> None:
    dialog.topic("orders", 5)
    members = [ConsumerMember(dialog, name) for name in "ab"]
    for member in members:
        member.join("orders", server_assignor="range")
    settle(dialog, *members)


def uniform_gives_equal_numbers(dialog: Dialog) -> None:
    dialog.topic("orders", 5)
    dialog.topic("bills", 4)
    dialog.shows_partitions = False
    members = [ConsumerMember(dialog, name) for name in "abc"]
    for member in members:
        member.join("orders", "bills", server_assignor="uniform")
    _settled_totals(dialog, *members)


def subscriptions_differ(dialog: Dialog) -> None:
    dialog.topic("orders", 4)
    dialog.topic("bills", 2)
    first, second = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    first.join("orders", "bills")
    second.join("bills")
    dialog.shows_partitions = False
    _settled_totals(dialog, first, second)


def a_partition_moves_after_its_revocation(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.shows_partitions = False
    first, second = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    first.join("orders")
    settle(dialog, first)
    second.join("orders")
    second.beat()
    first.beat()
    second.beat()
    _describe(dialog)
    first.beat()
    first.confirm()
    second.beat()
    first.beat()
    second.confirm()
    _describe(dialog)


def what_a_leaving_member_had_is_given_on(dialog: Dialog) -> None:
    dialog.topic("orders", 4)
    first, second = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    first.join("orders")
    second.join("orders")
    dialog.shows_partitions = False
    settle(dialog, first, second)
    dialog.shows_partitions = True
    second.leave()
    settle(dialog, first)


def a_subscription_changes(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.topic("bills", 1)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    member.heartbeat("subscribes to bills", subscribed_topic_names=("bills" + dialog.suffix,))
    settle(dialog, member)
    member.heartbeat("subscribes to nothing", subscribed_topic_names=())
    settle(dialog, member)
    _describe(dialog)


def a_topic_is_created_later(dialog: Dialog) -> None:
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    dialog.topic("orders", 2, is_awaited=False)
    _until_partitions(dialog, member, 2)
    settle(dialog, member)


def partitions_are_added(dialog: Dialog) -> None:
    dialog.topic("orders", 1)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    dialog.add_partitions("orders", 3)
    _until_partitions(dialog, member, 3)
    settle(dialog, member)


def a_topic_is_deleted(dialog: Dialog) -> None:
    dialog.topic("orders", 1)
    dialog.topic("bills", 1)
    member = ConsumerMember(dialog, "a")
    member.join("orders", "bills")
    settle(dialog, member)
    dialog.delete_topic("bills")
    _until_partitions(dialog, member, 1)
    settle(dialog, member)


def regular_expressions(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.topic("bills", 1)
    member = ConsumerMember(dialog, "a")
    member.join(subscribed_topic_names=None, subscribed_topic_regex="(orders")
    with dialog.unnoted():
        member.join(subscribed_topic_names=None, subscribed_topic_regex="o[a-z]*" + dialog.suffix)
    _until_partitions(dialog, member, 2)
    settle(dialog, member)
    _describe(dialog)
    member.beat(subscribed_topic_regex="[")
    with dialog.unnoted():
        member.beat(subscribed_topic_regex="b.*" + dialog.suffix)
    _until_partitions(dialog, member, 1)
    settle(dialog, member)


def regular_expressions_and_names(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.topic("bills", 1)
    member = ConsumerMember(dialog, "a")
    with dialog.unnoted():
        member.join("orders", subscribed_topic_regex="bills" + dialog.suffix)
    _until_partitions(dialog, member, 3)
    settle(dialog, member)
    with dialog.unnoted():
        member.beat(subscribed_topic_regex="")
    _until_partitions(dialog, member, 2)
    settle(dialog, member)


def empty_regular_expressions(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join(subscribed_topic_names=None, subscribed_topic_regex="")
    member.join("orders", subscribed_topic_regex="")


def an_expression_must_match_the_whole_name(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join(subscribed_topic_names=None, subscribed_topic_regex="rders" + dialog.suffix)
    settle(dialog, member)


def an_instance_id_is_in_use(dialog: Dialog) -> None:
    dialog.topic("orders")
    member, other = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    member.join("orders", instance_id="i")
    settle(dialog, member)
    other.join("orders", instance_id="i")
    other.heartbeat("has epoch 1 and that instance", member_epoch=1, instance_id="i")
    member.beat()
    _describe(dialog)


def a_static_member_comes_back(dialog: Dialog) -> None:
    dialog.topic("orders", 4)
    member, other, again = (ConsumerMember(dialog, name) for name in ("a", "b", "c"))
    member.join("orders", instance_id="i")
    other.join("orders", instance_id="j")
    dialog.shows_partitions = False
    settle(dialog, member, other)
    member.heartbeat("leaves for a while", member_epoch=-2, instance_id="i")
    _describe(dialog)
    other.beat()
    again.join("orders", instance_id="i")
    settle(dialog, again, other)
    member.epoch = 1
    member.heartbeat("goes on as before", instance_id="i")
    member.heartbeat("goes on without its instance")


def a_static_member_leaves_for_good(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member, other = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    member.join("orders", instance_id="i")
    settle(dialog, member)
    member.heartbeat("leaves", member_epoch=-1, instance_id="i")
    other.join("orders", instance_id="i")
    settle(dialog, other)


def another_member_leaves_as_that_instance(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member, other = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "b")
    member.join("orders", instance_id="i")
    other.heartbeat("leaves as instance i", member_epoch=-2, instance_id="i")
    other.heartbeat("leaves as instance j", member_epoch=-2, instance_id="j")
    other.heartbeat("leaves for good as instance i", member_epoch=-1, instance_id="i")
    member.beat(instance_id="i")


def the_group_is_full(dialog: Dialog) -> None:
    dialog.topic("orders")
    members = [ConsumerMember(dialog, name) for name in "abcde"]
    for member in members:
        member.heartbeat(
            "joins",
            member_epoch=0,
            rebalance_timeout=timedelta(seconds=60),
            subscribed_topic_names=("orders" + dialog.suffix,),
            topic_partitions=(),
        )
        if member is not members[-1]:
            dialog.answers.pop()
    members[0].leave()
    dialog.answers.append(("e joins after a left", members[4].join("orders").error_code.name))
    del dialog.answers[-2]


def a_silent_member_is_removed(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    dialog.configure(consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="200")
    member = ConsumerMember(dialog, "a")
    dialog.eventually("a joins and has the new interval", lambda: member.join("orders"), _is_often)
    dialog.eventually("the group is empty", lambda: _describe(dialog), lambda answer: not answer.groups[0].members)
    member.beat()


def group_configs_change_the_heartbeat_interval(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    dialog.configure(consumer_heartbeat_interval_ms="700")
    dialog.eventually("a has the new interval", member.beat, _is_often)


def groups_are_described(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    _describe(dialog)
    _describe(dialog, version=0)
    member = ConsumerMember(dialog, "a")
    member.join("orders", rack_id="r", instance_id="i")
    settle(dialog, member)
    _describe(dialog)
    _describe(dialog, version=0)
    dialog.ask("DescribeGroups", DESCRIBE_GROUPS, 6, groups=(dialog.group,))
    dialog.ask("ConsumerGroupDescribe of no name", CONSUMER_DESCRIBE, 1, group_ids=("",))


def groups_are_listed(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    for states, types in (((), ()), (("stable",), ()), (("Empty",), ()), ((), ("consumer",)), ((), ("classic",))):
        _list(dialog, states, types)


def offsets_are_committed_by_members(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    member.commit("orders", 5)
    member.fetch_offsets("orders")
    member.fetch_offsets("orders", "without being a member", member_id=None, member_epoch=-1)
    member.commit("orders", 6, version=8)
    member.fetch_offsets("orders")


def commits_with_other_epochs_are_refused(dialog: Dialog) -> None:
    dialog.topic("orders")
    dialog.topic("bills")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    first = member.epoch
    member.heartbeat("subscribes to both", subscribed_topic_names=("orders" + dialog.suffix, "bills" + dialog.suffix))
    settle(dialog, member)
    last, member.epoch = member.epoch, first
    member.commit("orders", 5)
    member.fetch_offsets("orders", "with its first epoch")
    member.epoch = last + 3
    member.commit("orders", 6)
    member.fetch_offsets("orders", "with a later epoch")
    member.epoch = first
    member.commit("orders", 7, version=8)
    member.epoch = last
    member.fetch_offsets("orders", "with its epoch")


def commits_of_strangers_are_refused(dialog: Dialog) -> None:
    dialog.topic("orders")
    member, stranger = ConsumerMember(dialog, "a"), ConsumerMember(dialog, "stranger")
    stranger.commit("orders", 1, generation_id_or_member_epoch=-1, member_id="")
    member.join("orders")
    settle(dialog, member)
    stranger.epoch = member.epoch
    stranger.commit("orders", 2)
    stranger.commit("orders", 3, generation_id_or_member_epoch=-1, member_id="")
    stranger.fetch_offsets("orders")
    member.leave()
    stranger.commit("orders", 4, generation_id_or_member_epoch=-1, member_id="")
    stranger.fetch_offsets("orders", "of the empty group", member_id=None, member_epoch=-1)


def commits_to_no_group(dialog: Dialog) -> None:
    dialog.topic("orders")
    stranger = ConsumerMember(dialog, "stranger")
    stranger.epoch = 4
    stranger.commit("orders", 1)
    stranger.commit("orders", 1, version=8)
    stranger.fetch_offsets("orders", "of no group")


def offsets_are_deleted(dialog: Dialog) -> None:
    dialog.topic("orders")
    dialog.topic("bills")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    member.commit("orders", 5)
    member.commit("bills", 5)
    for topic in ("orders", "bills"):
        _delete_offsets(dialog, topic)
    member.leave()
    _delete_offsets(dialog, "orders")


def groups_are_deleted(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    dialog.ask("DeleteGroups of no group", DELETE_GROUPS, 2, groups_names=(dialog.group,))
    member.join("orders")
    dialog.ask("DeleteGroups of a living group", DELETE_GROUPS, 2, groups_names=(dialog.group,))
    member.leave()
    dialog.ask("DeleteGroups of an empty group", DELETE_GROUPS, 2, groups_names=(dialog.group,))
    _describe(dialog)
    ConsumerMember(dialog, "b").heartbeat("has epoch 1", member_epoch=1)


def a_classic_member_of_another_kind_is_refused(dialog: Dialog) -> None:
    dialog.topic("orders")
    ConsumerMember(dialog, "a").join("orders")
    for protocol_type, protocol in (("connect", "compatible"), ("consumer", "range")):
        _join_classic(dialog, protocol_type, protocol, b"")
    dialog.ask(
        "a classic heartbeat of the member",
        HEARTBEAT,
        4,
        group_id=dialog.group,
        generation_id=1,
        member_id="a" + dialog.suffix,
    )


def a_consumer_group_takes_classic_members(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    settle(dialog, member)
    answer = _join_classic(dialog, "consumer", "range", _subscription(dialog))
    assert answer.member_id
    _describe(dialog)


def a_classic_group_of_another_kind_stays_classic(dialog: Dialog) -> None:
    dialog.topic("orders")
    _join_classic(dialog, "connect", "compatible", b"")
    ConsumerMember(dialog, "a").join("orders")
    _describe(dialog)


def an_empty_classic_group_becomes_a_consumer_group(dialog: Dialog) -> None:
    dialog.topic("orders")
    member = ConsumerMember(dialog, "a")
    member.commit("orders", 3, generation_id_or_member_epoch=-1, member_id="")
    dialog.ask("DescribeGroups", DESCRIBE_GROUPS, 6, groups=(dialog.group,))
    member.join("orders")
    settle(dialog, member)
    _describe(dialog)
    member.fetch_offsets("orders")


def a_share_group_takes_no_consumers(dialog: Dialog) -> None:
    dialog.topic("orders")
    ShareMember(dialog, "s").join_until_assigned("orders")
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    member.heartbeat("has epoch 1", member_epoch=1)
    member.commit("orders", 1, generation_id_or_member_epoch=1)
    _describe(dialog)
    _join_classic(dialog, "consumer", "range", _subscription(dialog))


def unknown_topics_are_reported_as_owned(dialog: Dialog) -> None:
    dialog.topic("orders", 2)
    member = ConsumerMember(dialog, "a")
    member.join("orders")
    member.own({"orders": (0, 1, 7)})
    member.heartbeat("owns partitions of no topic", topic_partitions=({"topic_id": None, "partitions": (0,)},))


def _describe(dialog: Dialog, version: int = 1) -> Any:
    return dialog.ask(f"ConsumerGroupDescribe {version}", CONSUMER_DESCRIBE, version, group_ids=(dialog.group,))


def _list(dialog: Dialog, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    answer = dialog.ask_quietly(LIST_GROUPS, 5, states_filter=states, types_filter=types)
    ours = [
        (found.protocol_type, found.group_state, found.group_type)
        for found in answer.groups
        if found.group_id == dialog.group
    ]
    dialog.answers.append((f"ListGroups of states {states}, types {types}", [answer.error_code.name, ours]))


def _delete_offsets(dialog: Dialog, topic: str) -> None:
    topics = ({"name": topic + dialog.suffix, "partitions": ({"partition_index": 0},)},)
    dialog.ask(f"OffsetDelete of {topic}", OFFSET_DELETE, 0, group_id=dialog.group, topics=topics)


def _join_classic(dialog: Dialog, protocol_type: str, protocol: str, metadata: bytes) -> Any:
    fields: dict[str, Any] = {
        "group_id": dialog.group,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "protocol_type": protocol_type,
        "protocols": ({"name": protocol, "metadata": metadata},),
    }
    answer = dialog.ask(f"JoinGroup of {protocol_type}, {protocol}", JOIN_GROUP, 9, member_id="", **fields)
    if answer.error_code is not ErrorCode.member_id_required:
        return answer
    title = f"JoinGroup of {protocol_type}, {protocol} with its member id"
    return dialog.ask(title, JOIN_GROUP, 9, member_id=answer.member_id, **fields)


def _subscription(dialog: Dialog) -> bytes:
    name = ("orders" + dialog.suffix).encode()
    return b"\x00\x01\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _until_partitions(dialog: Dialog, member: ConsumerMember, count: int) -> None:
    """Send heartbeats until that many partitions are assigned; how many that takes is not compared."""

    def has_all(_answer: Any) -> bool:
        return sum(len(item.partitions) for item in member.assigned or ()) == count

    with dialog.unnoted():
        dialog.eventually(f"{member.name} has {count} partitions", member.confirm, has_all)


def _settled_totals(dialog: Dialog, *members: ConsumerMember) -> None:
    """Let members settle, and note only how many partitions each has."""
    with dialog.unnoted():
        settle(dialog, *members)
    totals = [sum(len(item.partitions) for item in member.assigned) for member in members]
    dialog.answers.append(("numbers of partitions", sorted(totals)))


def _is_often(answer: Any) -> bool:
    return bool(answer.heartbeat_interval < timedelta(seconds=1))
