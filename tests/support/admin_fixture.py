"""The admin handlers of a broker without sockets: requests and responses as bytes, in any version."""

import asyncio
import dataclasses
import io
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import ModuleType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from quorum_fixture import options_of_one, run_here
from replica_fixture import log_directory, no_leader_connections, surroundings_of

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.assignments import Assignments
from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.audited import ACTS, events_of
from cordwood.cluster.kafka.call import Call, Services
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.dispatch import Api
from cordwood.cluster.kafka.message_writer import Answer
from cordwood.cluster.metadata.commands import BrokerId, Command, Endpoint, FenceBroker, RegisterBroker, UnfenceBroker
from cordwood.cluster.metadata.features import FIRST_LEVEL, NEWEST_LEVEL, OF_FIRST_RELEASE, SUPPORTED
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import SingleVoter
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.principal import NO_IDENTITY, Identity
from cordwood.cluster.telemetry.client_telemetry import ClientTelemetry
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import ThreadSyncer
from cordwood.replication.waiters import EndOfTickScheduler

NOW_MS = 1_700_000_000_000
"""The fixed time of the broker's clock."""

_RESPONSE_HEAD_BYTES = 8


def services_with(here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of services of which a test needs only these: the others are None, or have their default."""
    required = (
        field.name
        for field in dataclasses.fields(Services)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return {**dict.fromkeys(required), **here}


class AdminFixture:
    """The metadata of a cluster with the given brokers, and the handlers of broker 1."""

    def __init__(self, brokers: int = 1, level: int = NEWEST_LEVEL, **settings: Any) -> None:
        """`level` is the metadata.version of the cluster."""
        self.settings = Settings(**settings)
        self.runner = asyncio.Runner()
        rng = random.Random(1)
        options = options_of_one(rng, cluster_id="test-cluster", founding_level=level)
        self.voter = SingleVoter.open(SimulatedDisk(rng), "/metadata", options)
        for broker in range(1, brokers + 1):
            self.register(broker)
            self.unfence(broker)
        self.now_s = 0.0
        """The event loop's time."""
        # The admin handlers use no other service.
        here: dict[str, Any] = {
            "settings": self.settings,
            "quorum": self.voter,
            "rng": rng,
            "run_blocking": run_here,
            "turns": Turns(time.perf_counter),
            "decoding": DecodeQueue(run_here, Memory.unlimited().decoding),
            "wall_clock": lambda: NOW_MS,
            "telemetry": ClientTelemetry(lambda: self.image.client_metrics, 1 << 20, lambda: self.now_s),
            "group_configs": GroupConfigs(self.settings, lambda: self.image),
            "tokens": DelegationTokens(
                self.settings.delegation_token_secret_key, lambda: self.voter.image, lambda: NOW_MS
            ),
        }
        self.services = Services(**services_with(here))
        self.acts: list[AuditEvent] = []
        """The audit events of all requests so far."""

    @property
    def image(self) -> Image:
        return self.voter.image

    def propose(self, command: Command) -> Image:
        return self.runner.run(self.voter.propose(command))

    def register(self, broker: int) -> None:
        """Register a broker. It is fenced until `unfence`."""
        self.propose(self.registration(broker))

    def registration(self, broker: int, start: int = 0) -> RegisterBroker:
        """Return the registration of a start of a broker."""
        return RegisterBroker(
            BrokerId(broker),
            UUID(int=start or broker),
            (Endpoint("PLAINTEXT", f"host-{broker}", 9092), Endpoint("LAN", f"lan-{broker}", 9093)),
            f"rack-{broker}",
            levels=SUPPORTED if self.image.metadata_version > FIRST_LEVEL else OF_FIRST_RELEASE,
        )

    def unfence(self, broker: int) -> None:
        self.propose(UnfenceBroker(BrokerId(broker), self._epoch(broker)))

    def fence(self, broker: int) -> None:
        """Fence a broker, as after a lost session."""
        self.propose(FenceBroker(BrokerId(broker), self._epoch(broker)))

    def _epoch(self, broker: int) -> int:
        return self.image.brokers[BrokerId(broker)].epoch

    def keep_replicas(self, *paths: str) -> list[LogDirectory]:
        """Give the broker log directories and apply the assignments to them from now on."""
        return self.runner.run(self._keep_replicas(paths))

    async def _keep_replicas(self, paths: tuple[str, ...]) -> list[LogDirectory]:
        loop = asyncio.get_running_loop()
        disk, end_of_tick = SimulatedDisk(random.Random(1)), EndOfTickScheduler(loop)
        syncer = ThreadSyncer(loop, ThreadPoolExecutor(1))
        directories = [log_directory(disk, path, lambda _: None, syncer, end_of_tick) for path in paths]
        replicas = Replicas(directories, surroundings_of(self.settings.node_id, end_of_tick))
        log_maintenance = LogMaintenance(replicas, lambda: NOW_MS, Intervals(1e9, 0, 10))
        assignments = Assignments(
            replicas, log_maintenance.file_removal, no_leader_connections().follow, self.settings, lambda: NOW_MS
        )
        self.voter.subscribe(assignments.follow)
        self.services.replicas = replicas
        return directories

    def ask(self, api: ModuleType, version: int, **fields: Any) -> Any:
        """Send a request of one version. The response has that version's class. Nested fields are dicts."""
        return self.runner.run(self.answer(api, version, **fields))

    async def answer(
        self,
        api: ModuleType,
        version: int,
        listener: str = "PLAINTEXT",
        connection: int = 0,
        identity: Identity = NO_IDENTITY,
        client_id: str = "test",
        **fields: Any,
    ) -> Any:
        """Send a request as `ask` does, for concurrent requests. `connection` is the number of its connection."""
        request = message_of(load_request_schema(api.KEY, version), fields)
        called, turns = Api.of(api), self.services.turns
        head = RequestHead(api.KEY, version, 7, client_id, 0)
        decoded = await turns.run(called.decoding(head, memoryview(written(request))))
        call = Call(self.services, version, client_id, "127.0.0.1", listener, connection, identity)
        response = await api.handle(decoded, call)
        if api.KEY in ACTS:
            self.acts += filter(None, events_of(ApiKey(api.KEY), decoded, response, identity))
        return read_response(api.KEY, version, b"".join(await turns.run(called.encoding(head, response, Answer()))))

    def close(self) -> None:
        self.runner.run(self.voter.close())
        self.runner.close()


def message_of(schema: Any, fields: Mapping[str, Any]) -> Any:
    """Return a message with these fields. Fields that the version lacks are left out."""
    values = {}
    for field in dataclasses.fields(schema):
        if field.name in fields:
            values[field.name] = _value(field.type, fields[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _nothing(field.type)
    return schema(**values)


def _value(annotation: Any, value: Any) -> Any:
    entity = _entity_in(annotation)
    if entity is None or value is None:
        return value
    if isinstance(value, Mapping):
        return message_of(entity, value)
    return tuple(message_of(entity, item) for item in value)


def _entity_in(annotation: Any) -> Any:
    """Return the class of the nested messages in a field, or None."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next((entity for inner in get_args(annotation) if (entity := _entity_in(inner))), None)


def _nothing(annotation: Any) -> Any:
    if type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is tuple:
        return ()
    return next(empty for empty in (False, 0, "", timedelta(0)) if issubclass(annotation, type(empty)))


def written(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def read_response(api_key: int, version: int, frame: bytes) -> Any:
    schema = load_response_schema(api_key, version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head = _RESPONSE_HEAD_BYTES + bool(schema.__header_schema__.__flexible__)
    response, size = entity_reader(schema)(frame, head)
    assert head + size == len(frame)
    return response
