"""Fields of the requests about voters of the metadata quorum (KIP-853)."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call


class VoterListener(Protocol):
    """An endpoint of a voter: `name` is that of the controller listener, which all brokers share."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def check_cluster(cluster_id: str | None, call: Call) -> None:
    """Raise Refused if a request names another cluster."""
    if cluster_id not in (None, "", call.services.quorum.image.cluster_id):
        raise Refused(ErrorCode.inconsistent_cluster_id, f"This is not cluster {cluster_id}.")


def voter_address(listeners: Sequence[VoterListener]) -> tuple[str, int]:
    """Return host and port of the first endpoint. Raises Refused."""
    if not listeners:
        raise Refused(ErrorCode.invalid_request, "The request names no endpoint of the voter.")
    first = next(iter(listeners))
    return first.host, int(first.port)


def directory_of(directory_id: UUID | None) -> str:
    """Return a directory id as the UUID of the metadata. Raises Refused."""
    if directory_id is None:
        raise Refused(ErrorCode.invalid_request, "The request names no metadata directory of the voter.")
    return str(directory_id)
