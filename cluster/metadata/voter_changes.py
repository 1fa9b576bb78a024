"""Changes of the metadata quorum's voters by metadata commands. Pure."""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import AddVoter, BrokerId, RemoveVoter, UpdateVoter
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.voters import Voter


def after(image: Image, command: AddVoter | RemoveVoter | UpdateVoter) -> Mapping[BrokerId, Voter]:
    """Return the voters after the command. Raises CommandRefused."""
    known = image.voters.get(command.broker_id)
    if isinstance(command, AddVoter):
        if known is not None:
            raise CommandRefused(ErrorCode.duplicate_voter, f"Broker {command.broker_id} is a voter already.")
    elif known is None or known.directory_id != command.directory_id:
        raise CommandRefused(ErrorCode.voter_not_found, f"Broker {command.broker_id} is no voter with this directory.")
    if isinstance(command, RemoveVoter):
        return {broker_id: voter for broker_id, voter in image.voters.items() if broker_id != command.broker_id}
    return {**image.voters, command.broker_id: Voter(command.directory_id, command.host, command.port)}
