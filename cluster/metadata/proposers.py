"""Authorization of metadata proposals by the broker that sent them. Pure."""

from collections.abc import Callable, Collection

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterPartitions,
    AssignReplicasToDirs,
    BeginControlledShutdown,
    BrokerId,
    Command,
    DropReplicas,
    FenceBroker,
    FormatCluster,
    RegisterBroker,
    ReportUnflushed,
    UnfenceBroker,
    level_of,
)
from cordwood.cluster.metadata.image import CommandRefused, Image

Admit = Callable[[Command, Image], None]
"""Validates a command that another broker proposes. Raises CommandRefused."""


def admit_any(_command: Command, _image: Image) -> None:
    """Admit every command."""


def check_level(command: Command, image: Image) -> None:
    """Raise CommandRefused if the cluster's metadata.version is too low: an older broker could not read the command."""
    level = level_of(command)
    if level > image.metadata_version:
        sentence = (
            f"The cluster's metadata.version is {image.metadata_version}, and this needs {level}: once every broker"
            " runs the new release, run `cordwood feature upgrade`."
        )
        raise CommandRefused(ErrorCode.unsupported_version, sentence)


def may_propose(command: Command, sender: BrokerId, voters: Collection[BrokerId]) -> bool:
    """Return whether a command that `sender` sent may be appended to the log.

    A broker registers, reports and allocates ids only for itself. A voter may have forwarded an observer's command. A
    command of the active controller is already in its own log and never comes from another broker.
    """
    match command:
        case (
            RegisterBroker()
            | AlterPartitions()
            | DropReplicas()
            | ReportUnflushed()
            | AllocateProducerIds()
            | AssignReplicasToDirs()
        ):
            is_passed_on = sender in voters and command.broker_id not in voters
            return command.broker_id == sender or is_passed_on
        case FormatCluster() | FenceBroker() | UnfenceBroker() | BeginControlledShutdown():
            return False
        case _:
            return True
