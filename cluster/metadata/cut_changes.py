"""Changes of the cuts by metadata commands, and the deletions that cuts forbid. Pure."""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.cuts import CreateCut, Cut, DropCut
from cordwood.cluster.metadata.image import CommandRefused, TopicImage
from cordwood.cluster.metadata.image_delta import ImageDelta

CUTS_MAX = 1000
PARTITIONS_MAX = 100_000
"""Partitions of all cuts together: each broker has them in memory, and every snapshot of the metadata."""


def after(delta: ImageDelta, command: CreateCut | DropCut) -> Mapping[str, Cut]:
    """Return all cuts after the command. Raises CommandRefused."""
    before = delta.rest.cuts
    known = before.get(command.name)
    if isinstance(command, DropCut):
        if known is None or known.created_ms != command.created_ms:
            raise CommandRefused(ErrorCode.resource_not_found, f"There is no cut named {command.name}.")
        return {name: cut for name, cut in before.items() if name != command.name}
    if known is not None:
        raise CommandRefused(ErrorCode.duplicate_resource, f"A cut named {command.name} exists.")
    pinned = sum([len(cut.partitions) for cut in before.values()]) + len(command.partitions)
    if len(before) >= CUTS_MAX or pinned > PARTITIONS_MAX:
        sentence = f"A cluster has at most {CUTS_MAX} cuts of {PARTITIONS_MAX} partitions together: drop some first."
        raise CommandRefused(ErrorCode.policy_violation, sentence)
    for place in command.partitions:
        if delta.partition(place.topic_id, place.partition) is None:
            raise CommandRefused(ErrorCode.unknown_topic_id, f"No topic has the id {place.topic_id}.")
    return {**before, command.name: Cut(command.name, command.created_ms, command.expires_ms, command.partitions)}


def check_not_pinned(delta: ImageDelta, topic: TopicImage) -> None:
    """Raise CommandRefused if a cut pins records of the topic, which is to be deleted."""
    for cut in delta.rest.cuts.values():
        if any(place.topic_id == topic.id for place in cut.partitions):
            sentence = f"The cut {cut.name} pins records of topic '{topic.name}': drop the cut first."
            raise CommandRefused(ErrorCode.policy_violation, sentence)
