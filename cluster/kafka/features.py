"""Features of the cluster that ApiVersions announces, and what each broker supports of them (KIP-584)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kio.schema.api_versions.v4 import ApiVersionsRequest

from cordwood import __version__
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.metadata.features import METADATA_VERSION, OF_FIRST_RELEASE, SUPPORTED, Levels
from cordwood.cluster.metadata.image import Image

TRANSACTION_VERSION = "transaction.version"
_TRANSACTIONS = Levels(0, 2)
GROUP_VERSION = "group.version"
_GROUPS = Levels(0, 1)
SHARE_VERSION = "share.version"
_SHARES = Levels(0, 1)


class Feature(NamedTuple):
    """A feature: the levels that this broker supports, and the level at which the cluster runs it."""

    name: str
    supported: Levels
    level: int


def features_in(image: Image) -> tuple[Feature, ...]:
    """Return the features of a cluster with this metadata.

    transaction.version is always 2: the first produce to a partition adds it to the transaction, and each EndTxn bumps
    the epoch (KIP-890). group.version is always 1: groups may use the consumer protocol (KIP-848). share.version is
    always 1: share groups are served (KIP-932).
    """
    return (
        Feature(METADATA_VERSION, SUPPORTED, image.metadata_version),
        Feature(TRANSACTION_VERSION, _TRANSACTIONS, _TRANSACTIONS.newest),
        Feature(GROUP_VERSION, _GROUPS, _GROUPS.newest),
        Feature(SHARE_VERSION, _SHARES, _SHARES.newest),
    )


class BrokerLevels:
    """The levels of metadata.version that other brokers support, by their own answers."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def ask(self, broker_ids: Iterable[int]) -> dict[int, Levels | None]:
        """Return the levels of each broker; None for one that did not answer."""
        request = ApiVersionsRequest(client_software_name="cordwood", client_software_version=__version__)
        answers = await self._cluster.ask_all(broker_ids, lambda _: request)
        return {broker_id: None if answer is None else _levels_in(answer) for broker_id, answer in answers.items()}


def _levels_in(answer: Any) -> Levels:
    """Return the levels in a broker's ApiVersions. Release 0.1 does not announce the feature."""
    for feature in answer.supported_features:
        if feature.name == METADATA_VERSION:
            return Levels(feature.min_version, feature.max_version)
    return OF_FIRST_RELEASE
