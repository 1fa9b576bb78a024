"""Common parts of the transaction APIs: error codes of older versions, and the partitions that a request names."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import TopicPartition


def code_for(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Return the code for a version of the API: the older ones do not know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code


def codes_of_unknown(partitions: Iterable[TopicPartition], image: Image) -> dict[TopicPartition, ErrorCode]:
    """Return the code of each partition if any of them does not exist, so that none is added; else nothing."""
    known = {partition: image.has_partition(*partition) for partition in partitions}
    if all(known.values()):
        return {}
    return {
        partition: ErrorCode.operation_not_attempted if exists else ErrorCode.unknown_topic_or_partition
        for partition, exists in known.items()
    }
