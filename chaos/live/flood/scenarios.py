"""Flood scenarios: single requests and small scripts, each of which once stalled, filled or misled a broker."""

import contextlib
import http.client
import struct
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from kio.schema.create_topics.v5 import request as create_topics
from kio.schema.delete_acls.v2.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_producers.v0 import request as describe_producers
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v8 import request as metadata
from kio.schema.offset_fetch.v7 import request as offset_fetch
from kio.schema.offset_for_leader_epoch.v4 import request as leader_epochs
from kio.schema.produce.v8 import request as produce

from cordwood.chaos.live.flood import batches
from cordwood.chaos.live.flood.aim import FloodTarget
from cordwood.chaos.live.flood.raw_connection import RawConnection, ask

TOPIC_WAIT_S = 10.0
HOLD_S = 6.0
"""The time that idle connections stay open."""
DUPLICATES = 99_000
"""A request of 100,000 items is refused before it is decoded."""
SESSIONS, SESSION_PARTITIONS = 12, 98_000
UNREAD_CONNECTIONS, UNREAD_REQUESTS = 4, 1000
SMALLEST_BUFFER_BYTES = 4096
HALF_CONNECTIONS, HALF_BYTES = 12, 64 << 20
NEVER_ENOUGH_BYTES = 1 << 30
TOPIC_TYPE, ANY = 2, 1


class Served(Exception):
    """The broker accepted a request that it must refuse. The message names the request."""


def bomb_to_compacted_topic(aim: FloodTarget) -> None:
    """Produce 3 million records in some KB of zstd to a compacted topic, whose keys the broker must read."""
    topic = _new_topic(aim, {"cleanup.policy": "compact"})
    for _ in range(2):
        _produce(aim, topic, batches.bomb())
    _produce(aim, topic, batches.honest_bomb(1_000_000))
    _produce(aim, topic, batches.wide_bomb())


def bomb_read_over_http(aim: FloodTarget) -> None:
    """Read one record over HTTP out of batches of a million."""
    topic = _new_topic(aim)
    for batch in (batches.bomb(), batches.honest_bomb(1_000_000), batches.wide_bomb()):
        _produce(aim, topic, batch)
    for _ in range(3):
        _get(aim, f"/v1/topics/{topic}/records?limit=1")


def bomb_searched_by_time(aim: FloodTarget) -> None:
    """Search by time in batches of a million records, from eight connections."""
    topic = _new_topic(aim)
    for batch in (batches.bomb(), batches.honest_bomb(1_000_000), batches.wide_bomb()):
        _produce(aim, topic, batch)
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=0)
    topics = (list_offsets.ListOffsetsTopic(name=topic, partitions=(partition,) * 10),)
    request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    _ask_on_many(aim, request, connections=8)


def describe_configs_3000(aim: FloodTarget) -> None:
    """Describe all configs of one topic 3,000 times in one request."""
    topic = _new_topic(aim)
    resource = DescribeConfigsResource(resource_type=TOPIC_TYPE, resource_name=topic, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,) * 3000, include_synonyms=True, include_documentation=True)
    for _ in range(3):
        ask(aim.address, request)


def describe_groups_duplicates(aim: FloodTarget) -> None:
    """Describe one group 99,000 times in one request."""
    ask(
        aim.address,
        DescribeGroupsRequest(groups=aim.names.bystander_groups[:1] * DUPLICATES, include_authorized_operations=True),
    )


def offset_fetch_duplicates(aim: FloodTarget) -> None:
    """Request one committed offset 99,000 times in one request."""
    topic = offset_fetch.OffsetFetchRequestTopic(name=aim.names.bystander_topic, partition_indexes=(0,) * DUPLICATES)
    ask(
        aim.address,
        offset_fetch.OffsetFetchRequest(group_id=aim.names.bystander_groups[0], topics=(topic,), require_stable=False),
    )


def describe_producers_duplicates(aim: FloodTarget) -> None:
    """Describe the producers of one partition 99,000 times in one request."""
    topic = describe_producers.TopicRequest(name=aim.names.bystander_topic, partition_indexes=(0,) * DUPLICATES)
    ask(aim.address, describe_producers.DescribeProducersRequest(topics=(topic,)))


def leader_epoch_duplicates(aim: FloodTarget) -> None:
    """Request the end of one leader epoch 99,000 times in one request."""
    row = leader_epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = leader_epochs.OffsetForLeaderTopic(topic=aim.names.bystander_topic, partitions=(row,) * DUPLICATES)
    ask(aim.address, leader_epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,)))


def delete_acls_duplicates(aim: FloodTarget) -> None:
    """Delete by one filter 99,000 times in one request."""
    row = DeleteAclsFilter(
        resource_type_filter=TOPIC_TYPE,
        resource_name_filter="unknown",
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    ask(aim.address, DeleteAclsRequest(filters=(row,) * DUPLICATES))


def list_offsets_duplicates(aim: FloodTarget) -> None:
    """Request the end of one partition 99,000 times in one request."""
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name=aim.names.bystander_topic, partitions=(partition,) * DUPLICATES)
    ask(aim.address, list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,)))


def metadata_duplicates(aim: FloodTarget) -> None:
    """Request one topic 99,000 times in one request."""
    row = metadata.MetadataRequestTopic(name=aim.names.bystander_topic)
    ask(aim.address, _metadata((row,) * DUPLICATES))


def auto_create_10000_topics(aim: FloodTarget) -> None:
    """Create 10,000 topics with one Metadata request."""
    prefix = uuid.uuid4().hex
    rows = tuple(metadata.MetadataRequestTopic(name=f"{prefix}-{number}") for number in range(10_000))
    ask(aim.address, _metadata(rows, creates=True))


def fetch_one_partition_99000_times(aim: FloodTarget) -> None:
    """Wait without a session for 1 GiB of one partition that is named 99,000 times, while others write to it."""
    row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    _hold(aim, _fetch(((aim.names.bystander_topic, (row,) * DUPLICATES),)), connections=1)


def long_polls(aim: FloodTarget) -> None:
    """Wait on 50 connections for 1 GiB of the partition that others write to."""
    row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    _hold(aim, _fetch(((aim.names.bystander_topic, (row,)),)), connections=50)


def sessions_of_unknown_partitions(aim: FloodTarget) -> None:
    """Begin 12 fetch sessions of 98,000 partitions that do not exist, and close the connections."""
    row = [fetch.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(1000)]
    for number in range(SESSIONS):
        topics = tuple((f"unknown-{number}-{index}", tuple(row)) for index in range(SESSION_PARTITIONS // len(row)))
        ask(aim.address, _fetch(topics, session_epoch=0, max_wait_s=0))


def answers_not_read(aim: FloodTarget) -> None:
    """Describe all configs 1,000 times on each of four connections, without reading an answer."""
    topic = _new_topic(aim)
    resource = DescribeConfigsResource(resource_type=TOPIC_TYPE, resource_name=topic, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,) * 50, include_synonyms=True, include_documentation=True)
    _send_unread(aim, request)


def records_not_read(aim: FloodTarget) -> None:
    """Fetch 8 MB 1,000 times on each of four connections, without reading an answer."""
    topic = _new_topic(aim)
    record = batches.plain(1_000_000)
    for _ in range(8):
        _produce(aim, topic, record)
    row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
    _send_unread(aim, _fetch(((topic, (row,)),), max_wait_s=0))


def half_of_large_requests(aim: FloodTarget) -> None:
    """Announce a request of 99 MiB on each of 12 connections, and send 64 MiB of it."""
    half = struct.pack(">i", 99 << 20) + bytes(HALF_BYTES)
    connections = [RawConnection(aim.address, HOLD_S) for _ in range(HALF_CONNECTIONS)]
    for connection in connections:
        # A broker that stops reading has a bound on memory, as it should.
        with contextlib.suppress(OSError):
            connection.socket.sendall(half)
    time.sleep(HOLD_S)
    for connection in connections:
        connection.close()


def records_that_are_not_there(aim: FloodTarget) -> None:
    """Produce batches whose header claims millions of records, with one record or with all deltas 0."""
    topic = _new_topic(aim)
    for name, batch in {"1 record for 3,000,000": batches.liar(3_000_000), "all deltas 0": batches.bomb()}.items():
        if _produce(aim, topic, batch) is ErrorCode.none:
            raise Served(f"a batch with {name} was acknowledged")


def ten_thousand_tiny_batches(aim: FloodTarget) -> None:
    """Produce 10,000 batches of one empty record in one request, for one partition and for as many unknown ones."""
    topic = _new_topic(aim)
    known = produce.PartitionProduceData(index=0, records=batches.tiny())
    _send_produce(aim, produce.TopicProduceData(name=topic, partition_data=(known,) * 10_000))
    unknown = tuple(produce.PartitionProduceData(index=number, records=batches.tiny()) for number in range(10_000))
    _send_produce(aim, produce.TopicProduceData(name="unknown", partition_data=unknown))


def produce_of_99000_rows(aim: FloodTarget) -> None:
    """Produce one empty record each to 99,000 rows of one topic that name the same partition."""
    topic = _new_topic(aim)
    row = produce.PartitionProduceData(index=0, records=batches.tiny())
    _send_produce(aim, produce.TopicProduceData(name=topic, partition_data=(row,) * DUPLICATES))


Scenario = Callable[[FloodTarget], None]

SCENARIOS: dict[str, Scenario] = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        bomb_to_compacted_topic,
        bomb_read_over_http,
        bomb_searched_by_time,
        describe_configs_3000,
        describe_groups_duplicates,
        offset_fetch_duplicates,
        describe_producers_duplicates,
        leader_epoch_duplicates,
        delete_acls_duplicates,
        list_offsets_duplicates,
        metadata_duplicates,
        auto_create_10000_topics,
        fetch_one_partition_99000_times,
        long_polls,
        sessions_of_unknown_partitions,
        answers_not_read,
        records_not_read,
        half_of_large_requests,
        records_that_are_not_there,
        ten_thousand_tiny_batches,
        produce_of_99000_rows,
    )
}


SETTINGS = {"auto-create-10000-topics": {"auto.create.topics.enable": "true"}}
"""Broker settings of a scenario."""


def _new_topic(aim: FloodTarget, configs: dict[str, str] | None = None) -> str:
    """Create a topic of one partition. Return its name."""
    name = f"flood-{uuid.uuid4().hex}"
    rows = tuple(create_topics.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=1, replication_factor=-1, assignments=(), configs=rows
    )
    ask(aim.address, create_topics.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=TOPIC_WAIT_S)))
    return name


def _produce(aim: FloodTarget, topic: str, batch: bytes) -> ErrorCode:
    data = produce.PartitionProduceData(index=0, records=batch)
    return _send_produce(aim, produce.TopicProduceData(name=topic, partition_data=(data,)))


def _send_produce(aim: FloodTarget, topic: produce.TopicProduceData) -> ErrorCode:
    request = produce.ProduceRequest(
        transactional_id=None, acks=-1, timeout=timedelta(seconds=TOPIC_WAIT_S), topic_data=(topic,)
    )
    code: ErrorCode = ask(aim.address, request).responses[0].partition_responses[0].error_code
    return code


def _metadata(rows: tuple[metadata.MetadataRequestTopic, ...], *, creates: bool = False) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=rows,
        allow_auto_topic_creation=creates,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def _fetch(
    topics: tuple[tuple[str, tuple[fetch.FetchPartition, ...]], ...],
    session_epoch: int = -1,
    max_wait_s: float = HOLD_S,
) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        max_wait=timedelta(seconds=max_wait_s),
        min_bytes=NEVER_ENOUGH_BYTES,
        max_bytes=NEVER_ENOUGH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=session_epoch,
        topics=tuple(fetch.FetchTopic(topic=name, partitions=rows) for name, rows in topics),
        forgotten_topics_data=(),
    )


def _hold(aim: FloodTarget, request: object, connections: int) -> None:
    """Send the request on each connection, and leave the answers unread for a while."""
    held = [RawConnection(aim.address) for _ in range(connections)]
    for connection in held:
        connection.send(request)
    time.sleep(HOLD_S)
    for connection in held:
        connection.close()


def _ask_on_many(aim: FloodTarget, request: object, connections: int) -> None:
    asking = [RawConnection(aim.address) for _ in range(connections)]
    for connection in asking:
        connection.send(request)
    for connection in asking:
        connection.receive_frame()
        connection.close()


def _send_unread(aim: FloodTarget, request: object) -> None:
    """Send the request many times on each of some connections that read nothing, as far as the broker takes them."""
    held = [RawConnection(aim.address, 1.0, SMALLEST_BUFFER_BYTES) for _ in range(UNREAD_CONNECTIONS)]
    for connection in held:
        with contextlib.suppress(OSError):
            for _ in range(UNREAD_REQUESTS):
                connection.send(request)
    time.sleep(HOLD_S)
    for connection in held:
        connection.close()


def _get(aim: FloodTarget, path: str) -> bytes:
    connection = http.client.HTTPConnection(aim.http_address, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
