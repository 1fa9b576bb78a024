"""Which broker may propose which command: about itself, or what any client may ask for. Pure."""

from collections.abc import Callable, Collection

from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterPartitions,
    BeginControlledShutdown,
    BrokerId,
    Command,
    DropReplicas,
    FenceBroker,
    FormatCluster,
    RegisterBroker,
    ReportUnflushed,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import Image

Admit = Callable[[Command, Image], None]
"""Checks the values of a command that another broker proposes. Raises CommandRefused."""


def admit_any(_command: Command, _image: Image) -> None:
    """For a quorum whose commands have no meaning to anyone."""


def may_propose(command: Command, sender: BrokerId, voters: Collection[BrokerId]) -> bool:
    """Whether a command that `sender` sent may be put in the log.

    A broker registers, reports and takes ids for itself alone. A voter may have passed on what an observer sent it.
    What only the active controller decides is in its own log already: it never comes from elsewhere.
    """
    match command:
        case RegisterBroker() | AlterPartitions() | DropReplicas() | ReportUnflushed() | AllocateProducerIds():
            is_passed_on = sender in voters and command.broker_id not in voters
            return command.broker_id == sender or is_passed_on
        case FormatCluster() | FenceBroker() | UnfenceBroker() | BeginControlledShutdown():
            return False
        case _:
            return True
