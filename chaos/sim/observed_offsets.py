"""Committed group offsets as observed on coordinators; a later coordinator must not return lower ones (rule 10)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from cordwood.cluster.groups.topic import partition_of
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS


@dataclass(slots=True)
class ObservedOffsets:
    """By group and partition: the leader epoch of the observation, and the offset."""

    _offsets: dict[str, dict[tuple[str, int], tuple[int, int]]] = field(default_factory=dict)

    def compare(self, broker: Watched, image: Image) -> Iterator[tuple[str, str]]:
        """Compare a coordinator's committed offsets with those of earlier leader epochs.

        Within one leader epoch a commit of unknown outcome may take effect late, and lower an offset. The history
        checker decides such cases.
        """
        topic = image.topics_by_name.get(CONSUMER_OFFSETS)
        if topic is None:
            return
        for group, offsets in broker.groups.known():
            index = partition_of(group.group_id, len(topic.partitions))
            held, epoch = broker.replicas.get(CONSUMER_OFFSETS, index), topic.partitions[index].leader_epoch
            if held is None or not held.leads_in(epoch):
                continue
            now = {place: committed.offset for place, committed in offsets.items()}
            told = self._offsets.setdefault(group.group_id, {})
            for place, (before_epoch, offset) in told.items():
                if before_epoch < epoch and now.get(place, -1) < offset:
                    yield (
                        "rule-10",
                        f"group {group.group_id} had committed {offset} in {place}, and broker {broker.broker_id}, "
                        f"its next coordinator, has {now.get(place)}",
                    )
            told.update({place: (epoch, offset) for place, offset in now.items()})
