"""The share group of a live run: its config, its start offsets, and its members' rows as a part of the history."""

import time
from collections.abc import Mapping, Sequence, Set

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kio.schema.describe_share_group_offsets.v0.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.history import AckType, Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live import histories
from cordwood.chaos.live.broker_views import GROUP_KEY
from cordwood.chaos.live.client_rows import RowArray, ShareKind
from cordwood.chaos.live.second_protocol import ClusterRoutes
from cordwood.chaos.live.security import client_settings

GROUP = 2000
"""The number of the share group in the history."""
DELIVERY_LIMIT = 5
LOCK_MS = 15_000
"""The least time for which a broker may lock records, by default."""
ANSWER_S = 20.0
AT_END_S = 60.0
"""The longest time in which the start offsets may stay, before they are at the end."""
LOOK_S = 0.2
SESSION_SHIFT = 20
UNSEEN = 2
"""Deliveries of a record that no program has seen, before it counts as lost."""

REFUSED = frozenset({KafkaError.INVALID_RECORD_STATE, KafkaError.INVALID_REQUEST})
"""Codes of acknowledgements without an effect."""


def share_group_of(topic: str) -> str:
    """Return the share group of a run."""
    return f"{topic}-shared"


def begin_at_start(bootstrap: str, group: str) -> None:
    """Let a share group begin at the start of the log. Raises KafkaException."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient(client_settings(bootstrap))
    for future in admin.incremental_alter_configs([resource], request_timeout=ANSWER_S).values():
        future.result(ANSWER_S)


def wait_for_end(bootstrap: str, topic: str, ends: Mapping[int, int]) -> tuple[dict[int, int], list[Anomaly]]:
    """Wait until the share group has finished all records below `ends`. Return its start offsets, and what is wrong."""
    group, routes = share_group_of(topic), ClusterRoutes(bootstrap)
    starts, moved_s = dict[int, int](), time.monotonic()
    try:
        while any(starts.get(partition, 0) < end for partition, end in ends.items()):
            if time.monotonic() > moved_s + AT_END_S:
                sentence = f"The share group did not reach the end: it starts at {starts}, and the end is {dict(ends)}."
                return starts, [Anomaly("unread", sentence, (), 1)]
            time.sleep(LOOK_S)
            try:
                now = _starts(routes, group, topic, [*ends])
            except OSError:
                routes.forget()
                continue
            if now != starts:
                starts, moved_s = now, time.monotonic()
    finally:
        routes.close()
    return starts, []


def _starts(routes: ClusterRoutes, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Return the start offsets of a share group by partition. Raises OSError."""
    places = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(partitions))
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=(places,))
    answer = routes.coordinator(GROUP_KEY, group, DescribeShareGroupOffsetsRequest(groups=(asked,)))
    (reported,) = answer.groups
    if reported.error_code is not ErrorCode.none:
        raise OSError(reported.error_code.name)
    return {
        int(row.partition_index): int(row.start_offset)
        for of_topic in reported.topics
        for row in of_topic.partitions
        if row.error_code is ErrorCode.none and row.start_offset >= 0
    }


def add_share_group(
    history: HistoryBuilder,
    members: Sequence[RowArray],
    first: int,
    starts: Mapping[int, int],
    left_out: Set[histories.Place],
) -> None:
    """Add what the members of the share group have got and acknowledged, and its start offsets at the end.

    A member's number is its index after `first`. A client does not say which fetches had no answer, or one that the
    program did not get: UNSEEN of them are assumed.
    """
    history.share_group(GROUP, DELIVERY_LIMIT)
    last_ns = 0
    for number, rows in enumerate(members, first):
        session, place = number << SESSION_SHIFT, (GROUP, number, number << SESSION_SHIFT)
        for kind, partition, offset, value, count, invoked_ns, at_ns, content in rows.tolist():
            last_ns = max(last_ns, at_ns)
            offsets, times = (offset, offset + 1), (invoked_ns, at_ns)
            if kind == ShareKind.JOINED:
                session += 1
                place = (GROUP, number, session)
            elif kind == ShareKind.ACQUIRED:
                history.acquired(place, partition, offsets, count, times, lock_ms=LOCK_MS)
                if (partition, offset) not in left_out:
                    history.assign(number, partition, at_ns)
                    history.poll(number, partition, offset, value, at_ns, content=content)
            else:
                outcome = Outcome.OK if value == 0 else Outcome.FAIL if value in REFUSED else Outcome.INFO
                history.acknowledged(place, partition, offsets, AckType(count), times, outcome)
    for partition, start in starts.items():
        for _ in range(UNSEEN):
            history.acquired((GROUP, first, 0), partition, (0, 0), 0, (last_ns, last_ns), outcome=Outcome.INFO)
        history.share_start(GROUP, partition, start, last_ns)


def finished(members: Sequence[RowArray]) -> int:
    """Return how many acknowledgements finished a record."""
    final = (AckType.ACCEPT, AckType.REJECT)
    return sum(
        int(((rows["kind"] == ShareKind.ACKNOWLEDGED) & (rows["value"] == 0) & (rows["number"] == kind)).sum())
        for rows in members
        for kind in final
    )
