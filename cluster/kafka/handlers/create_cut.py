"""CreateCut (512): pins the committed records of topics under a name, until the cut is dropped or expires.

A cut ends at the last stable offset of each partition: every record below it is decided, so that a read_committed
reader gets the same records at any later time. Above it, the outcome of a transaction may still be open. The leaders
are asked at the same moment, and partition by partition: a transaction over several partitions may be in the cut in
one of them and not in another. A cut begins at the log start offset.

The response is sent once every broker in service has pinned the offsets.
"""

import re
from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import CreateCutRequest, CreateCutResponse
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.cut_rows import row_of
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, TOPIC, Right, Rights
from cordwood.cluster.metadata.cuts import CreateCut, Cut, CutPartition, DropCut
from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.proposals.topics import check_not_internal
from cordwood.storage.types import NEVER_EXPIRES, TopicPartition

KEY = ApiKey.CREATE_CUT
RIGHTS: Rights = (Right(ALTER, TOPIC),)

TRIES = 5
LIFETIME_MS_MAX = 100 * 366 * 24 * 3600 * 1000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


async def handle(request: CreateCutRequest, call: Call) -> CreateCutResponse:
    try:
        cut = await _create(request, call)
    except Refused as refusal:
        return CreateCutResponse(error_code=refusal.code, error_message=refusal.message, cuts=())
    row = row_of(cut, call.services.quorum.image)
    return CreateCutResponse(error_code=ErrorCode.none, error_message=None, cuts=(row,))


async def _create(request: CreateCutRequest, call: Call) -> Cut:
    _check(request)
    topics = [_topic(name, call) for name in dict.fromkeys(request.topics)]
    if request.name in call.services.quorum.image.cuts:
        # Before the leaders are asked. Two requests at the same moment are decided by the metadata log.
        raise Refused(ErrorCode.duplicate_resource, f"A cut named {request.name} exists.")
    for _ in range(TRIES):
        cut = await _pinned(request, topics, call)
        if cut is not None:
            return cut
    raise Refused(ErrorCode.request_timed_out, "Retention removed records of these topics at the same time: try again.")


async def _pinned(request: CreateCutRequest, topics: Sequence[TopicImage], call: Call) -> Cut | None:
    """Create the cut. Return None, with no cut left, if retention removed records before all brokers had pinned them.

    Raises Refused.
    """
    offsets, names = call.services.cut_offsets, [topic.name for topic in topics]
    starts, ends = await offsets.starts(names), await offsets.stable_ends(names)
    places = [TopicPartition(topic.name, index) for topic in topics for index in range(len(topic.partitions))]
    if any(place not in starts.keys() & ends.keys() for place in places):
        raise Refused(ErrorCode.request_timed_out, "The topics were changed at the same time: try again.")
    ids = {topic.name: topic.id for topic in topics}
    partitions = tuple(
        [
            CutPartition(ids[place.topic], place.partition, starts[place], max(starts[place], ends[place]))
            for place in places
        ]
    )
    now_ms = call.services.wall_clock()
    expires_ms = NEVER_EXPIRES if request.lifetime_ms == NEVER_EXPIRES else now_ms + request.lifetime_ms
    await propose(CreateCut(request.name, now_ms, expires_ms, partitions), call)
    cut = Cut(request.name, now_ms, expires_ms, partitions)
    try:
        await offsets.pinned_everywhere(cut)
        moved = await offsets.starts(names)
    except Refused:
        await propose(DropCut(cut.name, now_ms), call)
        raise
    if all(moved[place] <= starts[place] for place in places):
        return cut
    await propose(DropCut(cut.name, now_ms), call)
    return None


def _check(request: CreateCutRequest) -> None:
    if request.name in (".", "..") or not _NAME.fullmatch(request.name):
        message = "The name of a cut is 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'."
        raise Refused(ErrorCode.invalid_request, message)
    if not request.topics:
        raise Refused(ErrorCode.invalid_request, "A cut has at least one topic.")
    if request.lifetime_ms != NEVER_EXPIRES and not 0 < request.lifetime_ms <= LIFETIME_MS_MAX:
        raise Refused(ErrorCode.invalid_request, "The lifetime of a cut is at least 1 ms and at most 100 years.")


def _topic(name: str, call: Call) -> TopicImage:
    call.require(ALTER, TOPIC, name)
    check_not_internal(name)
    topic = call.services.quorum.image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"There is no topic {name!r}.")
    return topic
