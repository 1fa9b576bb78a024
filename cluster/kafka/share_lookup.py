"""Partitions that a member of a share group names, and its acknowledgements of their records."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.leader_hints import Leader, leader_in
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, refusal_of
from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.share.led_share_partition import LedSharePartition
from cordwood.cluster.share.share_partition import check_batches
from cordwood.cluster.share.share_sessions import MemberKey, PartitionId
from cordwood.cluster.share.states import AcknowledgementBatch, AcknowledgementType, SharePartitionKey
from cordwood.replication.partition import Partition

RUNS_AT_ONCE = 250
"""Acknowledge types, or runs of records of one type, that are applied in one step of the event loop: some 2 ms."""
MEMBER_ID_CHARS_MAX = 36
"""A member id is a UUID."""


Storing = asyncio.Future[Any]
"""Done once acknowledgements are stored, or fails with Refused."""


class PartitionAcks(NamedTuple):
    """The acknowledgements of a request for one partition."""

    place: PartitionId
    batches: tuple[AcknowledgementBatch, ...]


class NotAnswered(NamedTuple):
    """Why a request about one partition is refused."""

    code: ErrorCode
    message: str | None = None


def member_of(group_id: str | None, member_id: str | None, call: Call) -> MemberKey:
    """Return the member that sends a request. Raises Refused."""
    group = group_id or ""
    call.require(READ, GROUP, group)
    if not group or not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise Refused(ErrorCode.invalid_request, "A group id, and a member id of at most 36 characters, are required.")
    return MemberKey(group, member_id)


def topic_of(topic_id: UUID, call: Call) -> TopicImage:
    """Return the topic with this id, if the client may read it. Raises Refused."""
    topic = call.services.quorum.image.topics_by_id.get(topic_id)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_id)
    if not call.may(READ, TOPIC, topic.name):
        raise refusal_of(TOPIC)
    return topic


def partition_of(place: PartitionId, call: Call) -> Partition:
    """Return a partition that this broker leads. Raises Refused, and PartitionRefused."""
    topic = topic_of(place[0], call)
    if not 0 <= place[1] < len(topic.partitions):
        raise Refused(ErrorCode.unknown_topic_or_partition)
    if topic.partitions[place[1]].leader != call.services.settings.node_id:
        raise Refused(ErrorCode.not_leader_or_follower)
    return call.services.replicas.led(topic.name, place[1])


def leader_of(place: PartitionId, call: Call) -> Leader | None:
    """Return the leader of a partition, for a client that has asked the wrong broker."""
    image = call.services.quorum.image
    topic = image.topics_by_id.get(place[0])
    return None if topic is None else leader_in(image, topic.name, place[1], call.listener)


async def open_partition(group_id: str, place: PartitionId, call: Call) -> LedSharePartition:
    """Return a share partition of a group. Raises Refused, and one of EXPECTED."""
    partition = partition_of(place, call)
    return await call.services.share.open(SharePartitionKey(group_id, *place), partition)


async def acknowledge(
    member: MemberKey, wanted: Collection[PartitionAcks], call: Call, *, is_renewal: bool
) -> "list[Storing | NotAnswered | None]":
    """Acknowledge records. Return a future for each partition, or why it is refused; None if nothing is stored.

    Only a request with IsRenewAck may renew locks (KIP-1222), and only where the group's configs permit it.
    """
    permits_renewal = call.services.share.config_of(member.group_id).renew_enable
    results: list[Storing | NotAnswered | None] = []
    async for acks in call.turns.each(wanted):
        try:
            types = await call.turns.run(check_batches(acks.batches, may_renew=is_renewal))
            if not permits_renewal and AcknowledgementType.RENEW in types:
                raise Refused(ErrorCode.invalid_record_state, "The share group does not permit to renew locks.")
            led = await open_partition(member.group_id, acks.place, call)
            results.append(await _acknowledge(led, member.member_id, acks.batches, call))
        except (Refused, *EXPECTED) as error:
            results.append(not_answered(error))
    return results


async def _acknowledge(
    led: LedSharePartition, member_id: str, batches: Sequence[AcknowledgementBatch], call: Call
) -> "Storing | None":
    """Acknowledge records of one partition, many of them in steps of the event loop. Raises Refused.

    All are checked before the first counts. Only if a lock ends in between, a part may count without the rest.
    """
    is_large = len(batches) > RUNS_AT_ONCE or any(batch.end - batch.start > RUNS_AT_ONCE for batch in batches)
    if not is_large and sum(len(batch.types) for batch in batches) <= RUNS_AT_ONCE:
        return call.services.share.acknowledge(led, member_id, batches)
    for part in led.state.in_parts(batches, RUNS_AT_ONCE):
        await call.turns.turn()
        led.state.check_acknowledgements(member_id, part)
    waiting: list[asyncio.Future[None]] = []
    for part in led.state.in_parts(batches, RUNS_AT_ONCE):
        await call.turns.turn()
        if (future := call.services.share.acknowledge(led, member_id, part)) is not None:
            waiting.append(future)
    return asyncio.gather(*waiting) if len(waiting) > 1 else next(iter(waiting), None)


async def stored(results: "Sequence[Storing | NotAnswered | None]") -> list[NotAnswered | None]:
    """Wait until all acknowledgements are stored. Return for each why it is refused, or None."""
    outcomes: list[NotAnswered | None] = []
    for result in results:
        if isinstance(result, asyncio.Future):
            try:
                await result
                outcomes.append(None)
            except Refused as refusal:
                outcomes.append(not_answered(refusal))
        else:
            outcomes.append(result)
    return outcomes


def not_answered(error: Exception) -> NotAnswered:
    """Return the error code and the message of Refused or one of EXPECTED."""
    return NotAnswered(error.code, error.message) if isinstance(error, Refused) else NotAnswered(code_of(error))
