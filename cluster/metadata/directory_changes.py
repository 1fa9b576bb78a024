"""Changes of the log directories that brokers' replicas lie in, by metadata commands. Pure."""

from dataclasses import replace

from cordwood.cluster.metadata.commands import AssignReplicasToDirs
from cordwood.cluster.metadata.image import BrokerImage, Image
from cordwood.cluster.metadata.image_delta import ImageDelta


def after(delta: ImageDelta, broker: BrokerImage, command: AssignReplicasToDirs) -> Image:
    """Return the image (without its topics) after the command."""
    before = delta.rest.directories.get(broker.id, {})
    assigned = {(topic_id, partition): directory for topic_id, partition, directory in command.replicas}
    return replace(delta.rest, directories={**delta.rest.directories, broker.id: {**before, **assigned}})
