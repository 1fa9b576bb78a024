"""Changes of the log directories that brokers' replicas lie in, by metadata commands. Pure.

A replica without a recorded directory may be in any directory of its broker: the loss of each of them loses the
replica.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from cordwood.cluster.metadata.commands import AssignReplicasToDirs, BrokerId
from cordwood.cluster.metadata.image import BrokerImage, Image, Place, TopicImage, by_place
from cordwood.cluster.metadata.image_delta import ImageDelta
from cordwood.cluster.metadata.persistent_map import REMOVED, PersistentMap, Removed, differences

UNKNOWN = ""
"""Directory of a replica that moves: its log is in two."""
_DIRECTORY_ID = re.compile(r"[0-9a-f-]{32,36}")


def after(delta: ImageDelta, broker: BrokerImage, command: AssignReplicasToDirs) -> Image:
    """Return the image (without its topics) after the command. Rows that do not fit are passed over."""
    known = by_place(delta.rest.directories.get(broker.id, {}))
    changes: dict[Place, str | Removed] = {}
    for topic_id, index, directory in command.replicas:
        partition = delta.partition(topic_id, index)
        if partition is None or broker.id not in partition.replicas or directory not in (*broker.log_dirs, UNKNOWN):
            continue
        if known.get((topic_id, index), UNKNOWN) != directory:
            changes[topic_id, index] = REMOVED if directory == UNKNOWN else directory
    return _with(delta.rest, broker.id, known.updated(changes))


def missing(known: Iterable[str], now: Collection[str]) -> frozenset[str]:
    """Return the directory ids that are not registered any more. Paths, which earlier versions registered, are none."""
    return frozenset(directory for directory in known if _DIRECTORY_ID.fullmatch(directory) and directory not in now)


def lost(topic: TopicImage, broker_id: BrokerId, known: Mapping[Place, str], now: Collection[str]) -> Iterator[int]:
    """Yield the partitions of which the broker may have lost its replica, with the directories `now` left."""
    for index, partition in enumerate(topic.partitions):
        if broker_id in partition.replicas and known.get((topic.id, index)) not in now:
            yield index


def without_missing(image: Image, broker_id: BrokerId, now: Collection[str]) -> Image:
    """Forget what lay in directories that are not registered any more: it may be anywhere from now on."""
    known = by_place(image.directories.get(broker_id, {}))
    gone = {place: REMOVED for place, directory in known.items() if directory not in now}
    return _with(image, broker_id, known.updated(gone))


def without_removed(image: Image, before: TopicImage, after: TopicImage, indexes: Iterable[int]) -> Image:
    """Forget replicas that were removed from their brokers: they may return to another directory."""
    removed: dict[BrokerId, dict[Place, Removed]] = defaultdict(dict)
    for index in indexes if image.directories else ():
        if index < len(before.partitions):
            for broker_id in set(before.partitions[index].replicas) - set(after.partitions[index].replicas):
                removed[broker_id][after.id, index] = REMOVED
    for broker_id, places in removed.items():
        image = _with(image, broker_id, by_place(image.directories.get(broker_id, {})).updated(places))
    return image


def without_topic(image: Image, topic: TopicImage) -> Image:
    """Forget the replicas of a deleted topic."""
    places = {(topic.id, index): REMOVED for index in range(len(topic.partitions)) if image.directories}
    for broker_id in image.directories:
        image = _with(image, broker_id, by_place(image.directories[broker_id]).updated(places))
    return image


def _with(image: Image, broker_id: BrokerId, known: PersistentMap[Place, str]) -> Image:
    before = by_place(image.directories.get(broker_id, {}))
    if len(known) == len(before) and next(differences(before, known), None) is None:
        return image
    others = {other: places for other, places in image.directories.items() if other != broker_id}
    return replace(image, directories={**others, broker_id: known} if known else others)
