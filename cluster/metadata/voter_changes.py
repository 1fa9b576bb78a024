"""Changes of the metadata quorum's voters (KIP-853), one voter at a time. Pure.

A proposal names one voter. The leader checks it against the image that has its whole log, and fills in all voters after
the change. The entry is then valid wherever it is applied, and a voter reads the set without earlier entries.
"""

from collections.abc import Mapping
from dataclasses import replace

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import AddVoter, BrokerId, RemoveVoter, UpdateVoter
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.voters import Voter, Voters, of_rows, rows_of

VOTERS_MAX = 7
PORT_MAX = 65535

VoterChange = AddVoter | RemoveVoter | UpdateVoter

NO_QUORUM = (
    "This cluster of one broker has no metadata quorum: set controller.quorum.voters to ID@HOST:PORT of this broker,"
    " restart it, and then add voters."
)


def after(_image: Image, command: VoterChange) -> Voters:
    """Return the voters after a command of the log. Raises CommandRefused if no leader has completed it."""
    if not command.voters:
        raise CommandRefused(ErrorCode.unsupported_version, NO_QUORUM)
    return of_rows(command.voters)


def completed(image: Image, command: VoterChange, configured: Mapping[BrokerId, tuple[str, int]]) -> VoterChange:
    """Return the command with all voters after it. Raises CommandRefused.

    `configured` is controller.quorum.voters, the voters as long as the image has none.
    """
    voters = image.voters or _founders(image, configured)
    match command:
        case AddVoter():
            return replace(command, voters=rows_of(_added(image, voters, command)))
        case RemoveVoter():
            return replace(command, voters=rows_of(_removed(voters, command)))
        case UpdateVoter():
            return replace(command, voters=rows_of(_updated(image, voters, command)))


def metadata_directory(image: Image, broker_id: BrokerId) -> str | None:
    """Return the id of the directory that has the metadata of a registered broker: its first one."""
    broker = image.brokers.get(broker_id)
    return broker.log_dirs[0] if broker is not None and broker.log_dirs else None


def replaced_directory(image: Image) -> UpdateVoter | None:
    """Return the command that records the new directory of a voter that came back with an empty disk."""
    for voter_id, voter in image.voters.items():
        directory_id = metadata_directory(image, voter_id)
        if directory_id not in (None, voter.directory_id):
            return UpdateVoter(voter_id, directory_id, voter.host, voter.port)
    return None


def _founders(image: Image, configured: Mapping[BrokerId, tuple[str, int]]) -> Voters:
    voters = {}
    for voter_id, address in configured.items():
        directory_id = metadata_directory(image, voter_id)
        if directory_id is None:
            message = f"Voter {voter_id} has never registered: start it, so that the id of its directory is known."
            raise CommandRefused(ErrorCode.voter_not_found, message)
        voters[voter_id] = Voter(directory_id, *address)
    return voters


def _added(image: Image, voters: Voters, command: AddVoter) -> Voters:
    broker_id = command.broker_id
    if (known := voters.get(broker_id)) is not None:
        message = f"Broker {broker_id} is a voter already, with directory {known.directory_id}."
        raise CommandRefused(ErrorCode.duplicate_voter, message)
    directory_id = metadata_directory(image, broker_id)
    if directory_id != command.directory_id:
        found = "has not registered" if directory_id is None else f"has the metadata directory {directory_id}"
        message = f"Broker {broker_id} {found}, not {command.directory_id}: only a running broker becomes a voter."
        raise CommandRefused(ErrorCode.invalid_request, message)
    if len(voters) >= VOTERS_MAX:
        raise CommandRefused(ErrorCode.policy_violation, f"The quorum has {VOTERS_MAX} voters, and may not have more.")
    return _with_address(voters, broker_id, Voter(command.directory_id, command.host, command.port))


def _removed(voters: Voters, command: RemoveVoter) -> Voters:
    known = voters.get(command.broker_id)
    if known is None or known.directory_id != command.directory_id:
        found = "is no voter" if known is None else f"is a voter with directory {known.directory_id}"
        message = f"Broker {command.broker_id} {found}, not with directory {command.directory_id}."
        raise CommandRefused(ErrorCode.voter_not_found, message)
    if len(voters) == 1:
        message = f"Broker {command.broker_id} is the only voter: add another voter first."
        raise CommandRefused(ErrorCode.invalid_request, message)
    return {voter_id: voter for voter_id, voter in voters.items() if voter_id != command.broker_id}


def _updated(image: Image, voters: Voters, command: UpdateVoter) -> Voters:
    known = voters.get(command.broker_id)
    if known is None or command.directory_id not in (known.directory_id, metadata_directory(image, command.broker_id)):
        message = f"Broker {command.broker_id} is no voter with directory {command.directory_id}."
        raise CommandRefused(ErrorCode.voter_not_found, message)
    return _with_address(voters, command.broker_id, Voter(command.directory_id, command.host, command.port))


def _with_address(voters: Voters, voter_id: BrokerId, voter: Voter) -> Voters:
    if not voter.host or not 0 < voter.port <= PORT_MAX:
        message = f"{voter.host}:{voter.port} is no address at which other brokers reach broker {voter_id}."
        raise CommandRefused(ErrorCode.invalid_request, message)
    for other_id, other in voters.items():
        if other_id != voter_id and other.address == voter.address:
            message = f"{voter.host}:{voter.port} is the address of voter {other_id}."
            raise CommandRefused(ErrorCode.invalid_request, message)
    return {**voters, voter_id: voter}
