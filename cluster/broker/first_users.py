"""The founding of a cluster: its first users, before any broker is registered."""

import asyncio
from collections.abc import Sequence

import structlog

from cordwood.cluster.metadata.commands import AlterScramCredentials, ScramUpsertion
from cordwood.cluster.metadata.quorum import Quorum, QuorumUnavailable

RETRY_S = 1.0

_events = structlog.get_logger("broker")


async def add_first_users(quorum: Quorum, users: Sequence[ScramUpsertion]) -> None:
    """Add users to a cluster that no broker has registered with. Other clusters have the users that they have.

    Waits as long as the cluster has no quorum. Raises CommandRefused and QuorumFailed.
    """
    while users:
        image = quorum.image
        if image.brokers or image.scram_credentials:
            _events.warning("users.not_added", reason="--add-scram counts only when a cluster is founded")
            return
        try:
            await quorum.propose(AlterScramCredentials(tuple(users)))
        except QuorumUnavailable as unavailable:
            _events.warning("users.delayed", reason=str(unavailable))
            await asyncio.sleep(RETRY_S)
        else:
            _events.info("users.added", users=", ".join(sorted({user.user for user in users})))
            return
