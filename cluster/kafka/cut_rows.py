"""Cuts as rows of responses, with the names of their topics."""

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from cordwood.client.cut_messages import DescribedCut, DescribedCutPartition, DescribedCutTopic
from cordwood.cluster.metadata.cuts import Cut, CutPartition
from cordwood.cluster.metadata.image import Image


def topics_of(cut: Cut, image: Image) -> list[str]:
    """Return the names of the topics of a cut. No topic is deleted while a cut pins it."""
    return [image.topics_by_id[topic_id].name for topic_id in dict.fromkeys(one.topic_id for one in cut.partitions)]


def row_of(cut: Cut, image: Image) -> DescribedCut:
    by_topic: defaultdict[UUID, list[CutPartition]] = defaultdict(list)
    for one in cut.partitions:
        by_topic[one.topic_id].append(one)
    return DescribedCut(
        name=cut.name,
        created_ms=cut.created_ms,
        expires_ms=cut.expires_ms,
        topics=tuple(
            [
                DescribedCutTopic(
                    name=image.topics_by_id[topic_id].name, topic_id=topic_id, partitions=_partitions(of_topic)
                )
                for topic_id, of_topic in by_topic.items()
            ]
        ),
    )


def _partitions(rows: Iterable[CutPartition]) -> tuple[DescribedCutPartition, ...]:
    return tuple([DescribedCutPartition(partition_index=row.partition, start=row.start, end=row.end) for row in rows])
