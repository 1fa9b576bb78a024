"""Pipelined fetching of an offset range: the next Fetch is in flight while the last response is decoded."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import FetchRequest
from kio.schema.fetch.v11.request import FetchPartition, FetchTopic

from cordwood.columnar.batches import Aborted, FetchedBatches, split
from cordwood.columnar.errors import OffsetsGone
from cordwood.columnar.ranges import EARLIEST, LATEST, Isolation, OffsetRange
from cordwood.spark.client.backoff import Backoff
from cordwood.spark.client.cluster import CONSUMER, ClusterReader, PartitionLeader, check_code
from cordwood.spark.client.connection import ConnectionFailed
from cordwood.spark.client.pool import leased
from cordwood.storage.types import TopicPartition

NO_SESSION, FULL_FETCH = 0, -1


class OutOfRange(Exception):
    """The replica does not have the fetch offset."""


class NearerReplica(Exception):
    """The leader proposes to read from a replica in the reader's rack (KIP-392)."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"broker {broker_id} is nearer")
        self.broker_id = broker_id


def fetch(cluster: ClusterReader, wanted: OffsetRange) -> Iterator[FetchedBatches]:
    """Yield all batches of a range in order, each once, across leader changes.

    Raises OffsetsGone, CorruptRecords, RequestRefused, and Unavailable after `retry_timeout_ms` without progress.
    """
    backoff = Backoff(f"read {wanted}", cluster.settings.retry_timeout_ms)
    position = wanted.start
    while position < wanted.end:
        try:
            for fetched in _from_one_replica(cluster, wanted, position):
                backoff.progressed()
                yield fetched
                position = fetched.end
        except NearerReplica as nearer:
            cluster.prefer(wanted.place, nearer.broker_id)
        except OutOfRange:
            if cluster.leave_near(wanted.place):
                continue
            _check_what_is_gone(cluster, wanted, position)
            backoff.wait(ConnectionFailed(f"the leader has no offset {position}"))
        except ConnectionFailed as failure:
            cluster.forget(wanted.place)
            if cluster.leave_near(wanted.place):
                continue
            backoff.wait(failure)


def _from_one_replica(cluster: ClusterReader, wanted: OffsetRange, position: int) -> Iterator[FetchedBatches]:
    """Yield batches from the current leader, or from the preferred read replica.

    Raises ConnectionFailed, OutOfRange, NearerReplica, RequestRefused, CorruptRecords.
    """
    leader = cluster.source(wanted.place)
    with leased(leader.address, cluster.settings) as connection:
        connection.send(_request(cluster, wanted.place, leader, position))
        while position < wanted.end:
            fetched = _take(connection.receive(), cluster.settings.isolation, wanted.place, position)
            position = fetched.end
            if position < wanted.end:
                connection.send(_request(cluster, wanted.place, leader, position))
            yield fetched


def _request(cluster: ClusterReader, place: TopicPartition, leader: PartitionLeader, position: int) -> Any:
    settings = cluster.settings
    partition = FetchPartition(
        partition=place.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=position,
        partition_max_bytes=settings.fetch_bytes_max,
    )
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait=timedelta(milliseconds=settings.fetch_wait_ms),
        min_bytes=1,
        max_bytes=settings.fetch_bytes_max,
        isolation_level=settings.isolation,
        session_id=NO_SESSION,
        session_epoch=FULL_FETCH,
        topics=(FetchTopic(topic=place.topic, partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id=cluster.rack_for(place),
    )


def _take(answer: Any, isolation: Isolation, place: TopicPartition, position: int) -> FetchedBatches:
    """Check a response for `position`.

    Raises ConnectionFailed, OutOfRange, NearerReplica, RequestRefused, CorruptRecords.
    """
    check_code(answer.error_code, f"to fetch from {place}")
    partitions = [each for topic in answer.responses if topic.topic == place.topic for each in topic.partitions]
    if [each.partition_index for each in partitions] != [place.partition]:
        raise ConnectionFailed(f"a response without the requested {place}")
    [partition] = partitions
    if partition.error_code is ErrorCode.offset_out_of_range:
        raise OutOfRange
    check_code(partition.error_code, str(place))
    if partition.preferred_read_replica >= 0:
        raise NearerReplica(partition.preferred_read_replica)
    hides_aborted = isolation is Isolation.READ_COMMITTED
    batches = split(partition.records or b"", place, position)
    if not batches:
        end = partition.last_stable_offset if hides_aborted else partition.high_watermark
        raise ConnectionFailed(
            f"no records were returned from offset {position} on, although the partition can be read up to {end}"
        )
    listed = (partition.aborted_transactions or ()) if hides_aborted else ()
    aborted = [Aborted(each.producer_id, each.first_offset) for each in listed]
    return FetchedBatches(partition.records, batches, aborted)


def _check_what_is_gone(cluster: ClusterReader, wanted: OffsetRange, position: int) -> None:
    """Raise OffsetsGone unless the partition has the offset now.

    A leader's log has all committed records, so an offset past its end was committed in another log.
    """
    place = wanted.place
    start = cluster.offsets({place: EARLIEST})[place]
    if position < start:
        gone = OffsetRange(place.topic, place.partition, position, min(start, wanted.end))
        raise OffsetsGone(gone, f"the log now begins at offset {start} (retention or deleted records)")
    end = cluster.offsets({place: LATEST})[place]
    if position > end:
        gone = OffsetRange(place.topic, place.partition, position, wanted.end)
        raise OffsetsGone(gone, f"the log ends at offset {end}: the topic was probably deleted and created again")
