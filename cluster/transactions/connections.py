"""Newest connections of version 1 producers: a request that was delayed on an older one changes no transaction."""

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.storage.types import ProducerIdAndEpoch

PRODUCERS_MAX = 50_000
"""Producers of one generation. Two of them need some 20 MB."""


class NewestConnections:
    """The newest connection of each producer id and epoch that has sent a valid version 1 request.

    The numbers belong to the process, which numbers its connections, and not to a shard: a request may be delayed while
    this broker loads the transactional id again. Two generations bound their memory. The former one is forgotten
    when the recent one is full, so a producer stays known for the requests of at least `producers_max` others.
    """

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._recent: dict[ProducerIdAndEpoch, int] = {}
        self._former: dict[ProducerIdAndEpoch, int] = {}

    def note(self, producer: ProducerIdAndEpoch, connection: int) -> None:
        """Note a request. Raises Refused if the producer has sent one on a newer connection (transaction rule 6).

        The delayed request belongs to an earlier transaction: in version 1, all of them have the same epoch.
        """
        newest = self._recent.get(producer)
        if connection in (0, newest):
            return
        if connection < (newest or self._former.get(producer, 0)):
            raise Refused(ErrorCode.invalid_txn_state)
        self._recent[producer] = connection
        if len(self._recent) >= self._producers_max:
            self._former, self._recent = self._recent, {}
