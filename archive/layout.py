"""Names of the archive's objects, below the store's prefix.

    topics/CLUSTER/TOPIC_ID/SEQUENCE.json                    name, partitions and configs of a topic
    commits/CLUSTER/TOPIC_ID/PARTITION/SEQUENCE.json         one change of a partition's manifest
    segments/CLUSTER/TOPIC_ID/PARTITION/BASE-END-ID.log      the batches of a segment, as on a broker's disk
    segments/CLUSTER/TOPIC_ID/PARTITION/BASE-END-ID.state    index, leader epochs, producers, aborted index
    cuts/CLUSTER/NAME-CREATED_MS.json                        a cut that exists, with its offsets

Numbers have 20 digits, so that names are in the order of numbers. Each kind has its own prefix: a list of the topics,
or of a partition's commits, does not read the names of all segments.
"""

from typing import NamedTuple
from uuid import UUID

from cordwood.archive.manifest import ArchivedSegment, RemovedSegment, Upload

DIGITS = 20
TOPICS = "topics/"
LOG, STATE = "log", "state"


class SegmentName(NamedTuple):
    """The fields in the name of a segment's object."""

    topic_id: UUID
    partition: int
    base_offset: int
    end_offset: int
    id: UUID
    kind: str


def topics_prefix(cluster_id: str) -> str:
    return f"{TOPICS}{cluster_id}/"


def topic_prefix(cluster_id: str, topic_id: UUID) -> str:
    return f"{topics_prefix(cluster_id)}{topic_id}/"


def topic_name(cluster_id: str, topic_id: UUID, sequence: int) -> str:
    return f"{topic_prefix(cluster_id, topic_id)}{sequence:0{DIGITS}d}.json"


def commits_prefix(cluster_id: str, topic_id: UUID, partition: int) -> str:
    return f"commits/{cluster_id}/{topic_id}/{partition}/"


def commit_name(cluster_id: str, topic_id: UUID, partition: int, sequence: int) -> str:
    return f"{commits_prefix(cluster_id, topic_id, partition)}{sequence:0{DIGITS}d}.json"


def cuts_prefix(cluster_id: str) -> str:
    return f"cuts/{cluster_id}/"


def cut_name(cluster_id: str, name: str, created_ms: int) -> str:
    return f"{cuts_prefix(cluster_id)}{name}-{created_ms:0{DIGITS}d}.json"


def segments_prefix(cluster_id: str) -> str:
    return f"segments/{cluster_id}/"


def partition_prefix(cluster_id: str, topic_id: UUID, partition: int) -> str:
    return f"{segments_prefix(cluster_id)}{topic_id}/{partition}/"


def segment_names(
    cluster_id: str, topic_id: UUID, partition: int, segment: ArchivedSegment | Upload | RemovedSegment
) -> tuple[str, str]:
    """Return the names of the two objects of a segment: batches, and state."""
    prefix = partition_prefix(cluster_id, topic_id, partition)
    stem = f"{prefix}{segment.base_offset:0{DIGITS}d}-{segment.end_offset:0{DIGITS}d}-{segment.id}"
    return f"{stem}.{LOG}", f"{stem}.{STATE}"


def sequence_in(name: str) -> int | None:
    """Return the number in the name of a topic or commit object; None for any other name."""
    last = name.rpartition("/")[2]
    digits = last.removesuffix(".json")
    is_one = last == f"{digits}.json" and len(digits) == DIGITS and digits.isdecimal()
    return int(digits) if is_one else None


def topic_in(cluster_id: str, name: str) -> tuple[UUID, int] | None:
    """Return the topic id and the sequence in the name of a topic object; None for any other name."""
    sequence = sequence_in(name)
    try:
        topic_id = UUID(name.removeprefix(topics_prefix(cluster_id)).partition("/")[0])
    except ValueError:
        return None
    return None if sequence is None or name != topic_name(cluster_id, topic_id, sequence) else (topic_id, sequence)


def segment_in(cluster_id: str, name: str) -> SegmentName | None:
    """Return the fields in the name of a segment's object; None for any other name."""
    prefix = segments_prefix(cluster_id)
    try:
        topic, partition, last = name.removeprefix(prefix).split("/")
        stem, kind = last.split(".")
        base, end, identity = stem.split("-", 2)
        found = SegmentName(UUID(topic), int(partition), int(base), int(end), UUID(identity), kind)
    except ValueError:
        return None
    again = f"{partition_prefix(cluster_id, found.topic_id, found.partition)}{base}-{end}-{found.id}.{kind}"
    return found if again == name and kind in (LOG, STATE) and len(base) == len(end) == DIGITS else None
