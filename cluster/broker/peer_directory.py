"""Directory of peers for replication: addresses, probes, admission of followers, and the nearest replica (KIP-392)."""

import asyncio
from uuid import UUID

from cordwood.cluster.metadata.commands import NEVER_REGISTERED, BrokerId
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.replication.frames import Open
from cordwood.replication.partition import Partition

PROBE_TIMEOUT_S = 0.5


class PeerDirectory:
    """The peers of `broker_id` as of the newest image."""

    def __init__(
        self, quorum: Quorum, broker_id: int, listener: str, incarnation: UUID, *, is_rack_aware: bool = True
    ) -> None:
        """`listener` is the name of the listener between brokers. Unless `is_rack_aware`, no replica is nearest."""
        self._is_rack_aware = is_rack_aware
        self._quorum, self._me = quorum, BrokerId(broker_id)
        self._listener, self._incarnation = listener, incarnation

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Return host and port for other brokers; None if the broker is not known or has no such listener."""
        known = self._quorum.image.brokers.get(BrokerId(broker_id))
        endpoint = None if known is None else known.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    async def is_refused(self, broker_id: int) -> bool:
        """Return True only for a refused connection: no process listens there.

        A host that does not answer may still run a broker.
        """
        address = self.address(broker_id)
        if address is None:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        transport.close()
        return False

    def hello(self) -> Open:
        """Return the frame by which this broker introduces itself to a leader."""
        image = self._quorum.image
        me = image.brokers.get(self._me)
        return Open(self._me, self._incarnation, NEVER_REGISTERED if me is None else me.epoch, image.cluster_id)

    def why_not(self, hello: Open) -> str | None:
        """Return why a broker with this introduction may not follow (rule 6, KIP-903); None if it may.

        A broker that has only just been registered may have a newer image than this one: it retries.
        """
        image = self._quorum.image
        if hello.cluster_id != image.cluster_id:
            return f"it belongs to cluster {hello.cluster_id}, but this broker to {image.cluster_id}"
        known = image.brokers.get(BrokerId(hello.broker_id))
        if known is None:
            return "no such broker is registered"
        if (known.incarnation, known.epoch) != (hello.incarnation, hello.broker_epoch):
            return f"broker epoch {known.epoch} is registered, but its epoch is {hello.broker_epoch}"
        return None

    def nearest(self, partition: Partition, rack: str, offset: int) -> int | None:
        """Return the in-sync follower in a client's rack that has the offset (KIP-392); None to serve it here."""
        brokers = self._quorum.image.brokers
        me = brokers.get(self._me)
        if not self._is_rack_aware or partition.leading is None or me is None or me.rack == rack:
            return None
        for follower in partition.leading.followers():
            known = brokers.get(BrokerId(follower.broker_id))
            is_near = known is not None and known.is_alive and known.rack == rack
            if is_near and follower.is_in_sync and offset <= follower.flushed_end:
                return follower.broker_id
        return None
