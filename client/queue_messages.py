"""Messages about queues: APIs of Cordwood beside those of Kafka, with key numbers that Kafka does not use."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

VERSION = 0
ACKNOWLEDGE_QUEUE, DESCRIBE_SHARE_PARTITIONS = 515, 516


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    __version__: ClassVar[i16] = i16(VERSION)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeQueueResponse(_Message):
    """The outcome of each receipt, in the order of the request."""

    __type__: ClassVar = EntityType.response
    __api_key__: ClassVar[i16] = i16(ACKNOWLEDGE_QUEUE)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    lock_ms: i32 = field(metadata={"kafka_type": "int32"})
    """For how long renewed records are locked from now on."""
    outcomes: tuple[i16, ...] = field(metadata={"kafka_type": "int16"})
    """Kafka's error codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeQueueRequest(_Message):
    """Acknowledge records that this broker handed out over HTTP, with a type of acknowledgement of KIP-932."""

    __type__: ClassVar = EntityType.request
    __api_key__: ClassVar[i16] = i16(ACKNOWLEDGE_QUEUE)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __response_schema__: ClassVar = AcknowledgeQueueResponse
    group_id: str = field(metadata={"kafka_type": "string"})
    acknowledge_type: i8 = field(metadata={"kafka_type": "int8"})
    receipts: tuple[str, ...] = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSharePartition(_Message):
    """The state of a share group at the leader of a partition: from `start_offset` on, not all records are finished."""

    __type__: ClassVar = EntityType.nested
    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    start_offset: i64 = field(metadata={"kafka_type": "int64"})
    end_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The end of the records that have been delivered."""
    in_flight: i32 = field(metadata={"kafka_type": "int32"})
    """Records that have been delivered and are not finished."""
    acquired: i32 = field(metadata={"kafka_type": "int32"})
    """Records that are locked for members."""
    delivery_count_max: i32 = field(metadata={"kafka_type": "int32"})
    """The highest delivery count of a record in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSharePartitionsResponse(_Message):
    """The partitions that the broker leads and the group has read since it does."""

    __type__: ClassVar = EntityType.response
    __api_key__: ClassVar[i16] = i16(DESCRIBE_SHARE_PARTITIONS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    partitions: tuple[DescribedSharePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSharePartitionsRequest(_Message):
    """Describe the records in flight of a share group, in the partitions that the broker leads."""

    __type__: ClassVar = EntityType.request
    __api_key__: ClassVar[i16] = i16(DESCRIBE_SHARE_PARTITIONS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __response_schema__: ClassVar = DescribeSharePartitionsResponse
    group_id: str = field(metadata={"kafka_type": "string"})


REQUESTS: dict[int, Any] = {
    ACKNOWLEDGE_QUEUE: AcknowledgeQueueRequest,
    DESCRIBE_SHARE_PARTITIONS: DescribeSharePartitionsRequest,
}
