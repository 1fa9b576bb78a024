"""The composition root of a broker: every component is built and wired here, and nowhere else."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from cordwood.cluster.broker import quorums
from cordwood.cluster.broker.access import AclAccess
from cordwood.cluster.broker.assignments import Assignments
from cordwood.cluster.broker.audit import audit_log
from cordwood.cluster.broker.controller_runner import ControllerRunner
from cordwood.cluster.broker.coordinators import Coordinators
from cordwood.cluster.broker.credentials import Credentials, mechanisms_of
from cordwood.cluster.broker.damage_reports import DamageReports
from cordwood.cluster.broker.environment import Environment, share_out
from cordwood.cluster.broker.first_users import add_first_users
from cordwood.cluster.broker.identity import claim_all, scrub_identities
from cordwood.cluster.broker.isr_changes import IsrChanges
from cordwood.cluster.broker.lifecycle import Lifecycle, why_not_writable
from cordwood.cluster.broker.links import link_security, quorum_tls
from cordwood.cluster.broker.log_care import close_logs, log_cleaner_of, log_maintenance_of, scrubber_of
from cordwood.cluster.broker.log_directories import DirectoryCare, open_directories
from cordwood.cluster.broker.peer_directory import PeerDirectory
from cordwood.cluster.broker.share_services import ShareServices
from cordwood.cluster.broker.throttle_rates import follower_limits
from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.config.listeners import (
    HTTP,
    Listener,
    http_address,
    http_names,
    inter_broker_listener,
    listeners_of,
)
from cordwood.cluster.config.settings import RACK_AWARE, Settings
from cordwood.cluster.http.watched import Pauses, Watched
from cordwood.cluster.kafka.answer_memory import AnswerMemory
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authenticator import Authentication
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.client_throttle import ClientThrottle
from cordwood.cluster.kafka.cluster_client import IDLE_SHARE, ClusterClient
from cordwood.cluster.kafka.cut_offsets import CutOffsets
from cordwood.cluster.kafka.dispatch import Dispatcher, FastPathHandler
from cordwood.cluster.kafka.features import BrokerLevels
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.handlers import write_txn_markers
from cordwood.cluster.kafka.handlers.fetch import FetchHandler
from cordwood.cluster.kafka.handlers.produce import ProduceHandler
from cordwood.cluster.kafka.handlers.share_fetch import ShareFetchHandler
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.kafka.leader_hints import Leader, leader_in
from cordwood.cluster.kafka.leader_offsets import LeaderOffsets
from cordwood.cluster.kafka.marker_transport import MarkerTransport
from cordwood.cluster.kafka.named_topics import topic_name
from cordwood.cluster.kafka.peers import Peers
from cordwood.cluster.kafka.producer_ids import ProducerIds
from cordwood.cluster.kafka.quorum_leader import ASKING_BROKER, QuorumLeader
from cordwood.cluster.kafka.receive_buffer import LENGTH_BYTES
from cordwood.cluster.kafka.registry import served_apis
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.server import Server
from cordwood.cluster.kafka.transaction_verifier import TransactionVerifier
from cordwood.cluster.kafka.watchdog import Watchdog
from cordwood.cluster.metadata.commands import BrokerId, ScramUpsertion
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.cluster.repairs.repairs import Repairs
from cordwood.cluster.repairs.unflushed import UnflushedReplicas
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.telemetry.client_telemetry import ClientTelemetry
from cordwood.cluster.tiering.archiver import Archiver
from cordwood.cluster.transactions.markers import IN_FLIGHT_MAX
from cordwood.replication.archived_leaders import ArchivedLeaders
from cordwood.replication.flusher import FlushMeasures
from cordwood.replication.follower_connections import FollowerConnections
from cordwood.replication.leader_connection import LeaderConnection, LeaderConnections
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.range_reads import RangeReader
from cordwood.replication.recovery import Recovery
from cordwood.replication.replicas import LeftOut, Replicas
from cordwood.replication.truncation import Truncations
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.open_segments import OpenSegments

if TYPE_CHECKING:
    from cordwood.cluster.http.context import Context
    from cordwood.cluster.http.security.access import AccessControl
    from cordwood.cluster.http.server import HttpServer

_events = structlog.get_logger("broker")


class Broker:
    """One broker, from `start` to `stop`. `failure` gets a reason when the broker cannot go on."""

    def __init__(
        self, settings: Settings, environment: Environment, first_users: Sequence[ScramUpsertion] = ()
    ) -> None:
        """`first_users` are added if the cluster is founded."""
        self._settings, self._environment, self._first_users = settings, environment, first_users
        self._disk, self._wall_clock, self._rng = environment.disk, environment.wall_clock, environment.rng
        self._run_blocking = environment.run_blocking
        self._loop = asyncio.get_running_loop()
        self._incarnation = self._uuid()
        self._damage, self._turns = DamageRegister(), Turns(environment.clock)
        self._reports = DamageReports(self._damage, lambda topic_id, index: self._replicas.with_id(topic_id, index))
        self._requests = RequestMeasures(environment.clock)
        self._watchdog = Watchdog(environment.clock, self._requests)
        self._memory = Memory.of(
            max(settings.queued_max_request_bytes, settings.socket_request_max_bytes + LENGTH_BYTES),
            settings.max_incremental_fetch_session_cache_partitions,
        )
        self._audit = audit_log(settings, environment.disk, environment.run_blocking, environment.wall_clock)
        self._decoding = DecodeQueue(environment.run_blocking, self._memory.decoding)
        self._descriptors = share_out(
            environment.descriptors_max, settings.log_open_segments_max, settings.max_connections
        )
        self._access = AclAccess.of(settings, self._audit)
        self._http: HttpServer | None = None
        self._telemetry = ClientTelemetry(
            lambda: self._quorum.image.client_metrics, settings.telemetry_max_bytes, self._loop.time
        )
        self._group_configs = GroupConfigs(settings, lambda: self._quorum.image)
        self.failure: asyncio.Future[str] = self._loop.create_future()
        self.watched: Watched | None = None
        """The broker's observable state, for health and metrics; None until the cluster's metadata is known."""

    async def start(self) -> tuple[Listener, ...]:
        """Join the cluster, recover the logs, and serve. Return the bound listeners once this broker may lead.

        Waits as long as the cluster has no quorum. After a cancellation nothing is written any more. Raises OSError,
        StorageError, WrongDirectory, WrongMetadata, CommandRefused, UnknownCommand, QuorumFailed, RuntimeError.
        """
        settings = self._settings
        self._end_of_tick, self._flushes = EndOfTickScheduler(self._loop), FlushMeasures()
        directories, left_out = open_directories(
            settings.log_dirs, self._environment, self._end_of_tick, self._flushes, self._directory_failed
        )
        tls, opened = quorum_tls(settings, self._environment.tls), tuple(directory.path for directory in directories)
        self._quorum = quorums.open_quorum(
            replace(settings, log_dirs=opened), self._disk, self._run_blocking, self._rng, self._fail, tls, self._audit
        )
        self._lifecycle = Lifecycle(self._quorum, settings, self._incarnation, self._fail)
        self._controller_runner = ControllerRunner(
            self._quorum, settings, lambda broker_id: self._peer_directory.is_refused(broker_id), self._wall_clock
        )
        self._credentials = Credentials(settings, self._environment, lambda: self._quorum.image)
        self._event_log = MetadataEventLog(self._quorum, BrokerId(settings.node_id))
        self._build_replication(directories, left_out)
        self._build_coordinators()
        self._build_server()
        await self._credentials.start()
        watched = self._watch()
        await self._listen_for_http(watched)
        await quorums.begin(self._quorum)
        await add_first_users(self._quorum, self._first_users)
        self.watched = watched
        for repaired in quorums.damage_of(self._quorum):
            self._reports.repaired(repaired)
        self._controller_runner.start(self._marker_client, self._turns)
        self._directory_ids = claim_all(
            self._disk, directories, self._quorum.image, settings.node_id, self._uuid, self._reports.repaired
        )
        self._directories.settle()
        await self._audit.start()
        bound = await self._server.bind(listeners_of(settings, self._environment.hostname))
        await self._lifecycle.register(tuple(listener.endpoint for listener in bound), self._directory_ids)
        if self._access is not None:
            self._access.enforce(self._quorum, self._server.close_brokers)
        self._services.throttle.follow_metadata(self._quorum)
        recovery = Recovery(self._replicas, settings.num_recovery_threads_per_data_dir)
        await recovery.run(self._assignments.assigned(self._quorum.image), self._wall_clock())
        self._take_part()
        await UnflushedReplicas(self._quorum, settings.node_id, self._replicas).declared()
        await self._repairs.declared()
        self._lifecycle.start()
        await self._lifecycle.unfenced()
        await self._server.serve()
        self._log_maintenance.file_removal.remove_leftovers()
        self._watchdog.start()
        return bound

    async def stop(self) -> None:
        """Hand over leadership, close connections, flush and close the logs. The next start recovers nothing."""
        if self._settings.controlled_shutdown_enable:
            await self._lifecycle.begin_shutdown(self._settings.controlled_shutdown_max_wait_ms / 1000)
        await self._server.close()
        await self._credentials.close()
        self._watchdog.stop()
        if self._http is not None:
            await self._http.close()
        await self._audit_topic.close()
        await self._groups.close()
        await self._transactions.close()
        await self._shares.close()
        await self._verifier.close()
        await self._marker_client.close()
        await self._quorum_leader.close()
        await self._authentication.close()
        await self._peers.close()
        await self._dispatcher.close()
        self._assignments.close()
        await self._directories.close()
        await self._leader_connections.close()
        await self._archived_leaders.close()
        await self._truncations.close()
        await self._isr_changes.close()
        await self._scrubber.close()
        await self._archiving.close()
        await self._log_cleaner.close()
        await self._repairs.close()
        await self._log_maintenance.stop()
        await close_logs(self._replicas)
        self._lifecycle.close()
        await self._controller_runner.close()
        await self._quorum.close()
        await self._audit.close()
        self._environment.close()

    def _watch(self) -> Watched:
        return Watched(
            broker_id=BrokerId(self._settings.node_id),
            quorum=self._quorum,
            replicas=self._replicas,
            damage=self._damage,
            why_not_ready=self._why_not_ready,
            connection_count=lambda: self._server.connection_count,
            groups=self._groups,
            transactions=self._transactions,
            requests=self._requests,
            flushes=self._flushes,
            event_log=self._event_log,
            metadata_files=quorums.files_of(self._quorum),
            pauses=Pauses(self._environment.clock),
            watchdog=self._watchdog,
            memory=self._memory,
            turns=self._turns,
            wall_clock=self._wall_clock,
            log_cleaner=self._log_cleaner.measures,
            telemetry=self._telemetry,
            audit=self._audit,
            archiving=self._archiving,
            share=self._shares.partitions,
            throttle=self._limits.throttle,
        )

    def _why_not_ready(self) -> str | None:
        headroom_bytes = self._settings.log_dir_headroom_bytes
        return self._lifecycle.why_not_ready() or why_not_writable(self._replicas.directories, headroom_bytes)

    async def _listen_for_http(self, watched: Watched) -> None:
        """Serve health, metrics and the HTTP API from here on, if `http.listen` is set.

        The HTTP libraries, 10 MB, are imported only then.
        """
        address = http_address(self._settings)
        if address is not None:
            from cordwood.cluster.broker.http_access import http_access
            from cordwood.cluster.http.server import HttpServer

            names = http_names(self._settings, self._environment.hostname)
            certificates = self._environment.tls
            tls = None if certificates is None else certificates.of(HTTP)
            control = http_access(
                self._services, self._credentials, tls, lambda: self._lifecycle.is_registered, self._loop.time
            )
            context = self._context(watched, control)
            self._services.http_queues = context.queues
            self._http = HttpServer(watched, control, context, names)
            await self._http.start(*address, tls)

    def _context(self, watched: Watched, access_control: "AccessControl") -> "Context":
        """Return the HTTP API's context. The API reaches this broker and all others by the Kafka protocol."""
        from cordwood.cluster.http.context import Context

        cluster = self._cluster_client("http")
        randbytes = self._services.rng.randbytes
        return Context.of(watched, cluster, self._settings, self._decoding, self._wall_clock, access_control, randbytes)

    def _cluster_client(self, client_id: str) -> ClusterClient:
        """Return a Kafka client of this broker and all others."""
        listener = inter_broker_listener(self._settings)
        bytes_max = self._settings.socket_request_max_bytes
        here = InProcess(self._end_of_tick, self._replicas.read_piece, self._reports.damaged, bytes_max)
        return ClusterClient(
            self._settings.node_id,
            lambda received, identity: here.open(listener, self._dispatcher.handle, received, identity),
            self._peer_directory.address,
            self._peers.dial,
            self._turns,
            client_id,
            has_acls=self._access is not None,
        )

    def _take_part(self) -> None:
        """Take the roles of the assigned replicas and follow the metadata, once registered and recovered.

        There is no suspension point in between, so that no metadata change is missed or applied twice.
        """
        quorum, node_id = self._quorum, self._settings.node_id
        self._replicas.is_elsewhere = lambda topic, index: quorum.image.is_elsewhere(topic, index, node_id)
        self._replicas.name_elsewhere = lambda topic_id: topic_name(quorum.image, topic_id)
        self._assignments.begin(self._quorum.image)
        self._quorum.subscribe(self._assignments.follow)
        self._quorum.subscribe(self._repairs.on_metadata_change)
        self._quorum.subscribe(self._groups.on_metadata_change)
        self._quorum.subscribe(self._transactions.on_metadata_change)
        self._quorum.subscribe(self._shares.on_metadata_change)
        self._event_log.begin()
        self._log_maintenance.start()
        self._directories.start()
        self._log_cleaner.start()
        self._groups.start()
        self._transactions.start()
        self._shares.start()
        self._scrubber.start()
        self._archiving.start(self._replicas)
        if self._settings.audit_log_topic_enable:
            self._audit_topic.start(self._audit)

    def _build_replication(self, directories: list[LogDirectory], left_out: list[LeftOut]) -> None:
        settings, quorum, lag_max_s = self._settings, self._quorum, self._settings.replica_lag_time_max_ms / 1000
        self._archiving = Archiver(self._environment, quorum, settings)
        self._isr_changes = IsrChanges(quorum, settings.node_id, lambda one: self._follower_connections.epoch_of(one))
        context = PartitionContext(
            broker_id=settings.node_id,
            end_of_tick=self._end_of_tick,
            now=self._loop.time,
            lag_max_s=lag_max_s,
            wants_isr_change=self._isr_changes.want,
            found_damage=lambda partition, damage: self._repairs.found(partition, damage),
            start_moved=lambda partition: self._log_maintenance.checkpoints.write_soon(partition),
            partition_failed=lambda partition: self._repairs.failed(partition),
            open_segments=OpenSegments(self._descriptors.segments, settings.log_open_indexes_max_bytes),
            archive=self._archiving.view,
            lead_after_archive=lambda partition: self._archived_leaders.add(partition),
        )
        self._replicas = Replicas(directories, context, left_out)
        is_rack_aware = settings.replica_selector_class == RACK_AWARE
        self._peer_directory = PeerDirectory(
            quorum, settings.node_id, inter_broker_listener(settings), self._incarnation, is_rack_aware=is_rack_aware
        )
        self._limits, why_not = follower_limits(settings, quorum), self._peer_directory.why_not
        self._follower_connections = FollowerConnections(self._replicas, self._end_of_tick, self._limits, why_not)
        links = link_security(settings, self._environment.tls)
        self._peers = peers = Peers(self._end_of_tick, self._replicas.read_piece, self._run_blocking, self._rng, links)

        def leader_connection(leader: int) -> LeaderConnection:
            return LeaderConnection(
                leader,
                self._peer_directory.address,
                self._peer_directory.hello,
                peers.dial,
                self._end_of_tick,
                self._wall_clock,
                self._truncations,
                peers.dial_s,
            )

        self._truncations = Truncations()
        self._archived_leaders = ArchivedLeaders(self._truncations, self._roles_taken)
        self._leader_connections = LeaderConnections(leader_connection)
        self._log_maintenance = care = log_maintenance_of(settings, self._replicas, self._wall_clock)
        self._directories = DirectoryCare(quorum, settings, self._replicas, care.file_removal)
        self._log_cleaner = log_cleaner_of(settings, quorum, self._replicas, care, self._wall_clock, self._rng)
        self._repairs = Repairs(
            quorum,
            settings.node_id,
            self._replicas,
            self._leader_connections,
            care,
            self._truncations,
            lambda: self._assignments.open_more(quorum.image),
            self._damage,
            lambda: RangeReader(self._peer_directory.address, self._peer_directory.hello, peers.dial, peers.dial_s),
        )
        self._assignments = Assignments(
            self._replicas, care.file_removal, self._repairs.follow, settings, self._wall_clock, self._roles_taken
        )
        self._scrubber = scrubber_of(settings, self._replicas, self._scrub_the_rest, self._reports.undecodable)

    def _roles_taken(self) -> None:
        image = self._quorum.image
        self._repairs.on_metadata_change(image, image)
        self._directories.roles_taken()
        self._groups.roles_taken()
        self._transactions.roles_taken()
        self._shares.roles_taken()

    def _build_coordinators(self) -> None:
        settings = self._settings
        coordinators = Coordinators(
            settings, self._quorum, self._replicas, self._wall_clock, self._rng, self._group_configs
        )
        self._shares = ShareServices(
            settings,
            self._quorum,
            coordinators.of_share_groups(),
            self._cluster_client("share-groups"),
            self._group_configs,
            self._decoding,
            self._memory.sessions,
            self._wall_clock,
            self._end_of_tick,
            self._turns,
        )
        self._groups = coordinators.of_groups(self._turns, self._shares.persister)
        self._audit_topic = coordinators.of_audit()
        self._producer_ids = ProducerIds(self._quorum, BrokerId(settings.node_id))
        self._marker_client = self._cluster_client("transactions").apart(IDLE_SHARE * IN_FLIGHT_MAX)
        send_markers = MarkerTransport(
            self._marker_client, lambda wanted: write_txn_markers.write_here(wanted, self._services)
        ).send
        self._transactions = coordinators.of_transactions(send_markers, self._producer_ids.next)
        self._quorum_leader = QuorumLeader(self._cluster_client(ASKING_BROKER))
        self._verifier = TransactionVerifier(
            settings.node_id, self._transactions, lambda: self._quorum.image, self._marker_client.ask
        )

    def _build_server(self) -> None:
        settings = self._settings
        leader_offsets = LeaderOffsets(self._marker_client, lambda: self._quorum.image, self._turns)
        self._services = services = Services(
            settings=settings,
            quorum=self._quorum,
            replicas=self._replicas,
            groups=self._groups,
            transactions=self._transactions,
            verifier=self._verifier,
            producer_ids=self._producer_ids,
            run_blocking=self._run_blocking,
            turns=self._turns,
            decoding=self._decoding,
            wall_clock=self._wall_clock,
            rng=self._rng,
            served_apis=served_apis(),
            levels=BrokerLevels(self._marker_client),
            audit=self._audit,
            archive=self._archiving.reads,
            tokens=self._credentials.tokens,
            telemetry=self._telemetry,
            group_configs=self._group_configs,
            share=self._shares.partitions,
            share_coordinator=self._shares.coordinator,
            leader_offsets=leader_offsets,
            quorum_leader=self._quorum_leader,
            cut_offsets=CutOffsets(leader_offsets, self._marker_client, lambda: self._quorum.image),
            authorizer=OPEN_ACCESS if self._access is None else self._access.authorizer,
            throttle=ClientThrottle(self._requests.throttled),
        )
        slots = settings.max_incremental_fetch_session_cache_slots
        sessions = FetchSessions(slots, self._memory.sessions, self._rng)
        answers = AnswerMemory(self._memory.answers, lambda pool: self._server.memory.press(pool))
        self._dispatcher = Dispatcher(
            services, self._fast_path(sessions), self._follower_connections, self._requests, answers
        )
        mechanisms = mechanisms_of(settings, lambda: self._quorum.image, self._rng, self._credentials)
        self._authentication = Authentication(settings, services, mechanisms, self._dispatcher.handle)
        limit, descriptors = self._descriptors.connections, self._environment.descriptors_max
        if settings.is_given("max.connections") and limit < settings.max_connections:
            _events.warning("connections.limited", max_connections=limit, descriptors=descriptors)
        self._server = Server(
            replace(settings, max_connections=limit),
            self._end_of_tick,
            self._replicas.read_piece,
            self._dispatcher.handle,
            self._reports.damaged,
            self._requests,
            self._memory,
            sessions,
            self._authentication,
            self._environment.tls,
            self._audit,
            services.throttle,
        )

    def _fast_path(self, sessions: FetchSessions) -> dict[int, FastPathHandler]:
        authorizer = None if self._access is None else self._access.authorizer

        def find_leader(topic: str, index: int, listener: str) -> Leader | None:
            return leader_in(self._quorum.image, topic, index, listener)

        producing = ProduceHandler(
            self._replicas,
            self._decoding,
            self._wall_clock,
            find_leader,
            self._turns,
            self._verifier,
            authorizer,
        )
        fetching = FetchHandler(
            self._replicas,
            sessions,
            self._wall_clock,
            self._settings.fetch_max_bytes,
            self._peer_directory.nearest,
            find_leader,
            self._turns,
            authorizer,
            self._archiving.reads,
            self._services.throttle,
        )
        sharing = ShareFetchHandler(self._services, self._settings.fetch_max_bytes)
        return {ApiKey.PRODUCE: producing, ApiKey.FETCH: fetching, ApiKey.SHARE_FETCH: sharing}

    def _uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    def _directory_failed(self, directory: LogDirectory) -> None:
        _events.error("log_directory.offline", directory=directory.path, error=str(directory.error))
        self._replicas.go_offline(directory)
        self._repairs.lost_disk()
        if all(other.is_offline for other in self._replicas.directories):
            self._fail("all log directories are offline: replace the disks and restart the broker")

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    async def _scrub_the_rest(self) -> None:
        """Scrub the files outside the logs: metadata and identity files. Rewrite the damaged ones from memory."""
        for repaired in await quorums.scrub(self._quorum):
            self._reports.repaired(repaired)
        image, node_id, directories = self._quorum.image, self._settings.node_id, self._replicas.directories
        for repaired in await scrub_identities(self._disk, directories, image, node_id, self._directory_ids):
            self._reports.repaired(repaired)
