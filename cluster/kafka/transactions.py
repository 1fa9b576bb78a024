"""Common parts of the transaction APIs: error codes of older versions, and the partitions that a request names."""

from collections.abc import Container, Iterable

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.image import Image
from cordwood.storage.types import TopicPartition


def code_for(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Return the code for a version of the API: the older ones do not know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code


def codes_of_unknown(
    partitions: Iterable[TopicPartition], writable: Container[str], image: Image
) -> dict[TopicPartition, ErrorCode]:
    """Return the code of each partition if one does not exist or is not writable, so that none is added; else nothing.

    Whether a partition exists does not show in the code of a topic that the client may not write to.
    """
    codes = {}
    for partition in partitions:
        code = ErrorCode.none if image.has_partition(*partition) else ErrorCode.unknown_topic_or_partition
        codes[partition] = code if partition.topic in writable else ErrorCode.topic_authorization_failed
    if not any(codes.values()):
        return {}
    return {partition: code or ErrorCode.operation_not_attempted for partition, code in codes.items()}
