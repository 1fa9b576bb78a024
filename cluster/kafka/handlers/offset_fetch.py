"""OffsetFetch (9): the committed offsets of groups, for the requested partitions or for all.

Returned offsets are on disk. With `require_stable` (KIP-447), a partition of which an ongoing transaction has committed
an offset is refused with UNSTABLE_OFFSET_COMMIT, also if it has no other offset. A group that a request asks for all
its offsets is in the response once, however often it is named.

Version notes: 2 adds the error code of the group, before it each partition has the error; 7 adds `require_stable`; 8
takes several groups (KIP-709); 9 adds member epochs, with UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH (KIP-848); 10 names
topics by id.
"""

from collections.abc import Iterable, Iterator, Set
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v10.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.formats import CommittedOffset
from cordwood.cluster.groups.offsets import OffsetsByPartition
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.codec import upgrade_request as upgrade_by_name
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.named_topics import TopicRow, topic_name
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import generated, rows
from cordwood.cluster.kafka.wire import Topic
from cordwood.cluster.metadata.image import Image
from cordwood.storage.steps import Steps, at_once, in_order, portions
from cordwood.storage.types import NO_EPOCH, NO_OFFSET, TopicPartition

KEY = ApiKey.OFFSET_FETCH
RIGHTS: Rights = (Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, "other topics are left out of a list of all"))

AT_ONCE_MAX = 100
"""The topics and the partitions of a group whose answer is made in one step."""
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_MANY = 8
_FIRST_WITH_IDS = 10

Places = Set[TopicPartition]
NONE_PENDING: Places = frozenset()
Asked = Iterable[tuple[Topic | None, Iterable[int]]]

NOTHING = CommittedOffset(offset=NO_OFFSET, leader_epoch=NO_EPOCH, metadata="", committed_ms=-1)
"""The result for a partition without a committed offset."""


def upgrade_request(request: Any, version: int) -> OffsetFetchRequest:
    """Upgrade a request to version 9, after which topics have ids alone. Before version 8 it has one group."""
    if version >= _FIRST_WITH_MANY:
        upgraded: OffsetFetchRequest = upgrade_by_name(KEY, version, _FIRST_WITH_IDS - 1)(request)
        return upgraded
    topics = None
    if request.topics is not None:
        topics = rows(_topic_of_newest, request.topics)
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return OffsetFetchRequest(groups=(group,), require_stable=getattr(request, "require_stable", False))


def _topic_of_newest(topic: Any) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def downgrade_response(response: OffsetFetchResponse, version: int) -> Any:
    if version >= _FIRST_WITH_MANY:
        return response
    (only,) = response.groups
    return SimpleNamespace(throttle_time=response.throttle_time, topics=only.topics, error_code=only.error_code)


async def handle(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    # Answers of groups with few partitions are made when they are encoded: 10,000 of them take 15 MB.
    large: dict[int, OffsetFetchResponseGroup] = {}
    access = _Access(call)
    number, whole, repeated = 0, set[str](), set[int]()
    async for group in call.turns.each(request.groups):
        if group.topics is None and group.group_id in whole:
            repeated.add(number)
        elif _is_large(group, call):
            large[number] = await call.turns.run(_group(group, request.require_stable, access))
        if group.topics is None:
            whole.add(group.group_id)
        number += 1

    def group_rows() -> Iterator[OffsetFetchResponseGroup]:
        for number, group in enumerate(request.groups):
            if number not in repeated:
                yield large.get(number) or at_once(_group(group, request.require_stable, access))

    return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=generated(group_rows, number - len(repeated)))


class _Access:
    """The groups and topics that the client of one request may describe.

    Each group and topic is decided once: the response is lazy.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._groups: dict[str, bool] = {}
        self._topics: dict[str, bool] = {}

    def check_group(self, group_id: str) -> None:
        """Raise Refused if the client may not describe the group."""
        if group_id not in self._groups:
            self._groups[group_id] = self.call.may(DESCRIBE, GROUP, group_id)
        if not self._groups[group_id]:
            raise refusal_of(GROUP)

    def may_describe(self, topic: str, *, is_named: bool) -> bool:
        if topic not in self._topics:
            may = self.call.may if is_named else self.call.may_see
            self._topics[topic] = may(DESCRIBE, TOPIC, topic)
        return self._topics[topic]


def _is_large(wanted: OffsetFetchRequestGroup, call: Call) -> bool:
    topics = wanted.topics
    if topics is not None:
        return len(topics) > AT_ONCE_MAX or sum(len(topic.partition_indexes) for topic in topics) > AT_ONCE_MAX
    try:
        return len(call.services.groups.offsets_of(wanted.group_id)) > AT_ONCE_MAX
    except Refused:
        return False


def _group(wanted: OffsetFetchRequestGroup, require_stable: bool, access: _Access) -> Steps[OffsetFetchResponseGroup]:
    code, topics = ErrorCode.none, ()
    groups = access.call.services.groups
    try:
        access.check_group(wanted.group_id)
        groups.check_fetch(wanted.group_id, wanted.member_id, wanted.member_epoch)
        offsets = groups.offsets_of(wanted.group_id)
        # A copy: an offset that becomes stable meanwhile is not taken for a missing one.
        pending = groups.pending_of(wanted.group_id) if require_stable else NONE_PENDING
    except Refused as refusal:
        code = refusal.code
        if access.call.version < _FIRST_WITH_GROUP_ERROR:
            topics = yield from _wanted(wanted, {}, NONE_PENDING, code, access)
    else:
        topics = yield from _wanted(wanted, offsets, pending, ErrorCode.none, access)
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics, error_code=code)


def _wanted(
    wanted: OffsetFetchRequestGroup, offsets: OffsetsByPartition, pending: Places, code: ErrorCode, access: _Access
) -> Steps[tuple[Any, ...]]:
    image, is_named = access.call.services.quorum.image, wanted.topics is not None
    if wanted.topics is None:
        places = yield from in_order((yield from _visible(offsets, pending, access)), key=_itself)
        asked = _named(places) if access.call.version < _FIRST_WITH_IDS else _with_ids(places, image)
    else:
        asked = ((_topic(topic), topic.partition_indexes) for topic in wanted.topics)
    found = yield from by_topic(asked)

    def partition_row(name: str | None, index: int) -> OffsetFetchResponsePartitions:
        if name is None:
            return _partition(index, NOTHING, ErrorCode.unknown_topic_id)
        if not code and not access.may_describe(name, is_named=is_named):
            return _partition(index, NOTHING, ErrorCode.topic_authorization_failed)
        if (place := TopicPartition(name, index)) in pending:
            return _partition(index, NOTHING, ErrorCode.unstable_offset_commit)
        return _partition(index, offsets.get(place, NOTHING), code)

    def topic_row(topic: Topic | None) -> TopicRow:
        name, topic_id = (topic, None) if isinstance(topic, str) else (topic_name(image, topic), topic)
        return TopicRow(name, topic_id, rows(partial(partition_row, name), found[topic]))

    return rows(topic_row, found)


def _visible(offsets: OffsetsByPartition, pending: Places, access: _Access) -> Steps[list[TopicPartition]]:
    """Return the partitions with an offset, committed or pending, whose topics the client may describe."""
    visible: list[TopicPartition] = []
    for portion in portions(chain(list(offsets), pending)):
        visible += (place for place in portion if access.may_describe(place[0], is_named=False))
        yield
    return visible


def _topic(topic: Any) -> Topic | None:
    """Return the name or the id of a request's topic; None for the id of zeros."""
    named: Topic | None = getattr(topic, "name", None)
    return topic.topic_id if named is None else named


def _named(places: Iterable[TopicPartition]) -> Asked:
    return ((name, (index,)) for name, index in places)


def _with_ids(places: Iterable[TopicPartition], image: Image) -> Asked:
    """Yield the places by topic id, without those of deleted topics, which have none."""
    topics = image.topics_by_name
    return ((topics[name].id, (index,)) for name, index in places if name in topics)


def _itself(place: TopicPartition) -> TopicPartition:
    return place


def _partition(index: int, committed: CommittedOffset, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )
