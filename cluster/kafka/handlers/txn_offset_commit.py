"""TxnOffsetCommit (28): commits a group's offsets in a transaction. They are pending until the transaction ends.

Version notes: 2 adds COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296); 3 names the member, its generation and its instance,
which fences former members (KIP-447); 4 adds TRANSACTION_ABORTABLE, and 5 adds the group to the transaction (KIP-890).
"""

from collections.abc import Container
from functools import partial
from itertools import islice

from kio.schema.errors import ErrorCode
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Codes, Commit, MemberIdentity
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.transaction_verifier import UNREACHED, TransactionProtocol, Verification
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

KEY = ApiKey.TXN_OFFSET_COMMIT
RIGHTS: Rights = (Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP), Right(READ, TOPIC))

AT_ONCE_MAX = 500
"""Maximum number of offsets that are committed as one record batch."""
_FIRST_WITH_LOADING, _FIRST_WITH_ABORTABLE, _FIRST_THAT_ADDS = 2, 4, 5


async def handle(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    codes: Codes = {}
    refused, readable = None, frozenset[str]()
    try:
        call.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        call.require(READ, GROUP, request.group_id)
        readable = await call.permitted(READ, TOPIC, (topic.name for topic in request.topics))
    except Refused as refusal:
        refused = refusal.code
    rest = iter((await _commits_to_known(request, readable, call)).items())
    while commits := dict(islice(rest, AT_ONCE_MAX)):
        codes |= await _commit(request, commits, call)

    def partition_row(topic: str, partition: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        index = partition.partition_index
        code = refused or ErrorCode.topic_authorization_failed
        if topic in readable:
            code = codes.get(TopicPartition(topic, index), ErrorCode.unknown_topic_or_partition)
        return TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)

    def topic_row(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        return TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=rows(partial(partition_row, topic.name), topic.partitions)
        )

    return TxnOffsetCommitResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


async def _commit(request: TxnOffsetCommitRequest, commits: dict[TopicPartition, Commit], call: Call) -> Codes:
    """Commit the offsets of existing partitions. Return an error code for each."""
    member = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

    async def verify(place: TopicPartition) -> None:
        verification = Verification(request.transactional_id, producer, (place,), _protocol(call.version))
        code = (await call.services.verifier.verify(verification))[place]
        if code in UNREACHED or (code is ErrorCode.concurrent_transactions and call.version < _FIRST_THAT_ADDS):
            # The group coordinator is the right one, and the client need not look for another.
            code = ErrorCode.coordinator_load_in_progress
        if code is not ErrorCode.none:
            raise Refused(code)

    try:
        return await call.services.groups.commit_in_transaction(
            request.group_id, member, producer, commits, verify, is_v2=call.version >= _FIRST_THAT_ADDS
        )
    except Refused as refusal:
        code = refusal.code
        if code is ErrorCode.coordinator_load_in_progress and call.version < _FIRST_WITH_LOADING:
            code = ErrorCode.coordinator_not_available
        elif code is ErrorCode.stale_member_epoch:
            # Clients know it from version 6 on only.
            code = ErrorCode.illegal_generation
        return dict.fromkeys(commits, code)


def _protocol(version: int) -> TransactionProtocol:
    if version >= _FIRST_THAT_ADDS:
        return TransactionProtocol.ADDS
    return TransactionProtocol.KNOWS_ABORTABLE if version >= _FIRST_WITH_ABORTABLE else TransactionProtocol.FIRST


async def _commits_to_known(
    request: TxnOffsetCommitRequest, readable: Container[str], call: Call
) -> dict[TopicPartition, Commit]:
    image = call.services.quorum.image
    commits: dict[TopicPartition, Commit] = {}
    async for name, partition in call.turns.within((topic.name, topic.partitions) for topic in request.topics):
        if name in readable and image.has_partition(name, partition.partition_index):
            commits[TopicPartition(name, partition.partition_index)] = Commit(
                partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
            )
    return commits
