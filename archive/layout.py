"""Names of the archive's objects, below the store's prefix.

    CLUSTER/topics/TOPIC_ID/topic-SEQUENCE.json                       name, partitions and configs of a topic
    CLUSTER/topics/TOPIC_ID/PARTITION/commits/SEQUENCE.json           one change of a partition's manifest
    CLUSTER/topics/TOPIC_ID/PARTITION/BASE-END-ID.log                 the batches of a segment, as on a broker's disk
    CLUSTER/topics/TOPIC_ID/PARTITION/BASE-END-ID.state               index, leader epochs, producers, aborted index

Numbers have 20 digits, so that names are in the order of numbers.
"""

from uuid import UUID

from cordwood.archive.manifest import ArchivedSegment, RemovedSegment, Upload

DIGITS = 20


def topics_prefix(cluster_id: str) -> str:
    return f"{cluster_id}/topics/"


def topic_prefix(cluster_id: str, topic_id: UUID) -> str:
    return f"{topics_prefix(cluster_id)}{topic_id}/"


def topic_name(cluster_id: str, topic_id: UUID, sequence: int) -> str:
    return f"{topic_prefix(cluster_id, topic_id)}topic-{sequence:0{DIGITS}d}.json"


def partition_prefix(cluster_id: str, topic_id: UUID, partition: int) -> str:
    return f"{topic_prefix(cluster_id, topic_id)}{partition}/"


def commit_name(cluster_id: str, topic_id: UUID, partition: int, sequence: int) -> str:
    return f"{partition_prefix(cluster_id, topic_id, partition)}commits/{sequence:0{DIGITS}d}.json"


def segment_names(
    cluster_id: str, topic_id: UUID, partition: int, segment: ArchivedSegment | Upload | RemovedSegment
) -> tuple[str, str]:
    """Return the names of the two objects of a segment: batches, and state."""
    prefix = partition_prefix(cluster_id, topic_id, partition)
    stem = f"{prefix}{segment.base_offset:0{DIGITS}d}-{segment.end_offset:0{DIGITS}d}-{segment.id}"
    return f"{stem}.log", f"{stem}.state"
