"""Messages about cuts: APIs of Cordwood beside those of Kafka, with key numbers that Kafka does not use."""

from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

VERSION = 0
CREATE_CUT, DESCRIBE_CUTS, DROP_CUT = 512, 513, 514


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    __version__: ClassVar[i16] = i16(VERSION)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCutPartition(_Message):
    """The pinned offsets of a partition: from `start` up to `end`."""

    __type__: ClassVar = EntityType.nested
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    start: i64 = field(metadata={"kafka_type": "int64"})
    end: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCutTopic(_Message):
    """A topic of a cut, with its partitions."""

    __type__: ClassVar = EntityType.nested
    name: str = field(metadata={"kafka_type": "string"})
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[DescribedCutPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCut(_Message):
    """A cut. Times are ms since 1970; -1 for a cut that does not expire."""

    __type__: ClassVar = EntityType.nested
    name: str = field(metadata={"kafka_type": "string"})
    created_ms: i64 = field(metadata={"kafka_type": "int64"})
    expires_ms: i64 = field(metadata={"kafka_type": "int64"})
    topics: tuple[DescribedCutTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCutResponse(_Message):
    """The new cut, or the error."""

    __type__: ClassVar = EntityType.response
    __api_key__: ClassVar[i16] = i16(CREATE_CUT)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    cuts: tuple[DescribedCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCutRequest(_Message):
    """Create a cut of some topics. It expires after `lifetime_ms`, or never (-1)."""

    __type__: ClassVar = EntityType.request
    __api_key__: ClassVar[i16] = i16(CREATE_CUT)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __response_schema__: ClassVar = CreateCutResponse
    name: str = field(metadata={"kafka_type": "string"})
    topics: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    lifetime_ms: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCutsResponse(_Message):
    """The cuts that the client may describe, by name."""

    __type__: ClassVar = EntityType.response
    __api_key__: ClassVar[i16] = i16(DESCRIBE_CUTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    cuts: tuple[DescribedCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCutsRequest(_Message):
    """Describe the cuts of these names, or all for null. An unknown name is left out."""

    __type__: ClassVar = EntityType.request
    __api_key__: ClassVar[i16] = i16(DESCRIBE_CUTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __response_schema__: ClassVar = DescribeCutsResponse
    names: tuple[str, ...] | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCutResponse(_Message):
    """The error, if the cut was not dropped."""

    __type__: ClassVar = EntityType.response
    __api_key__: ClassVar[i16] = i16(DROP_CUT)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCutRequest(_Message):
    """Drop a cut by name."""

    __type__: ClassVar = EntityType.request
    __api_key__: ClassVar[i16] = i16(DROP_CUT)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __response_schema__: ClassVar = DropCutResponse
    name: str = field(metadata={"kafka_type": "string"})


REQUESTS: dict[int, Any] = {CREATE_CUT: CreateCutRequest, DESCRIBE_CUTS: DescribeCutsRequest, DROP_CUT: DropCutRequest}
