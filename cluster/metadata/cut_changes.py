"""Changes of the cuts by metadata commands. Pure."""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import CreateCut, DropCut
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.image_delta import ImageDelta


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
    for place in command.partitions:
        if delta.partition(place.topic_id, place.partition) is None:
            raise CommandRefused(ErrorCode.unknown_topic_id, f"No topic has the id {place.topic_id}.")
    return {**before, command.name: Cut(command.name, command.created_ms, command.expires_ms, command.partitions)}
