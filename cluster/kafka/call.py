"""The request context of a handler: broker services, API version and client identity."""

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cordwood.cluster.kafka.client_throttle import ClientThrottle, QuotaExceeded
from cordwood.cluster.kafka.rights import refusal_of
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.audit.log import NO_AUDIT
from cordwood.cluster.security.authorizer import CLUSTER_NAME, OPEN_ACCESS
from cordwood.cluster.security.principal import NO_IDENTITY, Identity

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

    from cordwood.cluster.config.group_configs import GroupConfigs
    from cordwood.cluster.config.settings import Settings
    from cordwood.cluster.groups.coordinator import GroupCoordinator
    from cordwood.cluster.kafka.cut_offsets import CutOffsets
    from cordwood.cluster.kafka.features import BrokerLevels
    from cordwood.cluster.kafka.leader_offsets import LeaderOffsets
    from cordwood.cluster.kafka.producer_ids import ProducerIds
    from cordwood.cluster.kafka.quorum_leader import QuorumLeader
    from cordwood.cluster.kafka.transaction_verifier import TransactionVerifier
    from cordwood.cluster.metadata.quorum import Quorum
    from cordwood.cluster.operations.queue_receipts import Receipt
    from cordwood.cluster.resources.decode_queue import DecodeQueue
    from cordwood.cluster.resources.turns import Turns
    from cordwood.cluster.security.audit.log import AuditSink
    from cordwood.cluster.security.authorizer import Authorizer
    from cordwood.cluster.security.delegation_tokens import DelegationTokens
    from cordwood.cluster.share.coordinator import ShareCoordinator
    from cordwood.cluster.share.share_partitions import SharePartitions
    from cordwood.cluster.telemetry.client_telemetry import ClientTelemetry
    from cordwood.cluster.tiering.reads import ArchiveReads
    from cordwood.cluster.transactions.coordinator import TransactionCoordinator
    from cordwood.replication.replicas import Replicas
    from cordwood.replication.tasks import RunBlocking

NO_THROTTLE = timedelta(0)


NO_SOFTWARE = ("unknown", "unknown")

Work = Callable[[], Coroutine[Any, Any, None]]
"""Makes the coroutine of a request, once its task has begun. A task that is cancelled before leaves no coroutine."""


class ServedApi(NamedTuple):
    """An API with its oldest and newest version, both inclusive, as in ApiVersions."""

    key: int
    oldest: int
    newest: int


class HttpQueues(Protocol):
    """The records that clients of this broker's HTTP API hold. The API provides it."""

    async def acknowledge(
        self, group_id: str, receipts: Sequence["Receipt | None"], acknowledge_type: int
    ) -> "tuple[list[ErrorCode], int]":
        """Acknowledge records that this broker handed out. Return the outcomes, and the duration of locks in ms."""
        ...


@dataclass(slots=True)
class Services:
    """The broker services that handlers use. Built once, in `broker.py`."""

    settings: "Settings"
    quorum: "Quorum"
    replicas: "Replicas"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    verifier: "TransactionVerifier"
    producer_ids: "ProducerIds"
    run_blocking: "RunBlocking"
    turns: "Turns"
    decoding: "DecodeQueue"
    wall_clock: Callable[[], int]
    rng: random.Random
    served_apis: tuple[ServedApi, ...]
    levels: "BrokerLevels"
    tokens: "DelegationTokens"
    cut_offsets: "CutOffsets"
    telemetry: "ClientTelemetry"
    group_configs: "GroupConfigs"
    share: "SharePartitions"
    share_coordinator: "ShareCoordinator"
    leader_offsets: "LeaderOffsets"
    quorum_leader: "QuorumLeader"
    authorizer: "Authorizer" = OPEN_ACCESS
    audit: "AuditSink" = NO_AUDIT
    archive: "ArchiveReads | None" = None
    """None if this broker has no archive."""
    throttle: ClientThrottle = field(default_factory=ClientThrottle)
    http_queues: HttpQueues | None = None
    """None if this broker has no HTTP API."""


@dataclass(slots=True)
class Call:
    """One request's API version, client and listener."""

    services: Services
    version: int
    client_id: str
    client_host: str
    listener: str
    connection: int = 0
    """The number of the client's connection, which rises with each accepted one; 0 without a socket."""
    identity: Identity = NO_IDENTITY
    software: tuple[str, str] = NO_SOFTWARE
    """Name and version of the client's library (KIP-511)."""
    throttle_ms: int = 0
    """For how long the client is throttled for its changes of partitions."""

    def may(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client may do the operation on the resource of that name."""
        return self.services.authorizer.may(self.identity, operation, resource, name)

    def may_see(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        """Decide as `may`, where a refusal leaves something out or leads to another question, and refuses nothing."""
        return self.services.authorizer.may_see(self.identity, operation, resource, name)

    def may_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """Return whether the client may do the operation on any resource of that type at all (KIP-679)."""
        return self.services.authorizer.may_any(self.identity, operation, resource)

    def require(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raise Refused with the error code of the type of resource if the client may not do the operation."""
        if not self.may(operation, resource, name):
            raise refusal_of(resource)

    async def permitted(self, operation: AclOperation, resource: AclResource, names: Iterable[str]) -> frozenset[str]:
        """Return those of the names on which the client may do the operation."""
        return frozenset([name async for name in self.turns.each(names) if self.may(operation, resource, name)])

    def operations(self, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on the resource, as a bit set (KIP-430)."""
        return self.services.authorizer.operations(self.identity, resource, name)

    def count_mutations(self, partitions: int, first_strict: int) -> None:
        """Count partitions that are created or deleted against the client's controller_mutation_rate (KIP-599).

        Raises Refused from version `first_strict` on. A client of an older version is only throttled.
        """
        throttle = self.services.throttle
        if throttle.is_active:
            is_strict = self.version >= first_strict
            try:
                throttle_ms = throttle.mutate(self.identity, self.client_id, partitions, is_strict=is_strict)
            except QuotaExceeded as refusal:
                self.throttle_ms = max(self.throttle_ms, refusal.throttle_ms)
                raise
            self.throttle_ms = max(self.throttle_ms, throttle_ms)

    @property
    def turns(self) -> "Turns":
        """The time slices in which a handler iterates over the items of a large request."""
        return self.services.turns
