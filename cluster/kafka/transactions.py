"""Common parts of the transaction APIs: error codes of older versions, and the partitions that a request names."""

from collections.abc import Container, Iterable

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.image import Image
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition


def code_for(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Return the code for a version of the API: the older ones do not know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code


def codes_of_unknown(
    partitions: Iterable[TopicPartition], writable: Container[str], image: Image
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Return the code of each partition if one does not exist or is not writable, so that none is added; else nothing.

    Whether a partition exists does not show in the code of a topic that the client may not write to.
    """
    codes, may_be_added = {}, True
    for partition in partitions:
        code = ErrorCode.none if image.has_partition(*partition) else ErrorCode.unknown_topic_or_partition
        codes[partition] = code if partition.topic in writable else ErrorCode.topic_authorization_failed
        may_be_added = may_be_added and codes[partition] is ErrorCode.none
        yield
    if may_be_added:
        return {}
    for partition, code in codes.items():
        if code is ErrorCode.none:
            codes[partition] = ErrorCode.operation_not_attempted
        yield
    return codes
