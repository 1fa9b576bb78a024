"""The three forms of the metadata quorum in a broker: single voter, Raft voter, observer."""

import random
from collections.abc import Callable, Sequence

from cordwood.cluster.broker.identity import cluster_of, refuse_to_found
from cordwood.cluster.broker.restore_mark import refuse_unrestored
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.voters import bootstrap_of, metadata_address, voters_of
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumOptions, QuorumTls, SingleVoter, Timing
from cordwood.cluster.metadata.raft.conversion import convert
from cordwood.cluster.metadata.raft.observer import Observer
from cordwood.cluster.metadata.raft.storage import is_of_quorum
from cordwood.cluster.metadata.raft.voter import RaftQuorum
from cordwood.cluster.proposals.admission import admission
from cordwood.cluster.security.audit.event import FAILED, AuditEvent
from cordwood.cluster.security.audit.log import AuditSink
from cordwood.cluster.security.principal import Identity
from cordwood.replication.log_directory import METADATA
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog

JOIN_QUORUM = "JOIN_QUORUM"
"""The action of an event about a connection to the quorum's listener that is refused."""

AnyQuorum = SingleVoter | RaftQuorum | Observer


def open_quorum(
    settings: Settings,
    disk: Disk,
    run_blocking: RunBlocking,
    rng: random.Random,
    failed: Callable[[str], None],
    tls: QuorumTls | None,
    audit: AuditSink,
) -> AnyQuorum:
    """Read the metadata that this broker keeps. Blocks. `failed` is called with the reason if the broker must stop.

    Raises DamagedLog, CommandRefused, UnknownCommand, WrongDirectory, WrongMetadata; RuntimeError for another PySyncObj
    than the one that Cordwood was made for.
    """
    node_id, voters = BrokerId(settings.node_id), voters_of(settings)
    directory = f"{settings.log_dirs[0]}/{METADATA}"
    election_s = settings.controller_quorum_election_timeout_ms / 1000

    def on_failure(error: QuorumFailed) -> None:
        failed(f"this broker has lost the metadata log and must stop: {error}")

    def on_rejected_peer(host: str, reason: str) -> None:
        audit.note(AuditEvent(JOIN_QUORUM, Identity(host=host), "", FAILED, reason, is_refusal=True))

    refuse_unrestored(disk, settings.log_dirs)
    bootstrap, address = bootstrap_of(settings), metadata_address(settings)
    is_single = not voters and not bootstrap and not is_of_quorum(disk, directory)
    if is_single:
        refuse_to_found(disk, directory, settings.log_dirs)
    options = QuorumOptions(
        node_id=node_id,
        rng=rng,
        run_blocking=run_blocking,
        on_failure=on_failure,
        on_refused=failed,
        on_rejected_peer=on_rejected_peer,
        voters=voters,
        bootstrap=bootstrap,
        may_found=not bootstrap,
        bind=address or ("", 0),
        cluster_id=settings.cluster_id or ("" if is_single else cluster_of(disk, settings.log_dirs)),
        secret=settings.controller_quorum_secret,
        tls=tls,
        snapshot_interval_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        timing=Timing(election_s / 2, election_s, election_s / 10),
        admit=admission(settings),
    )
    if is_single:
        return SingleVoter.open(disk, directory, options)
    if address is None:
        return Observer(options)
    if set(voters) == {node_id}:
        convert(disk, directory, options)
    return RaftQuorum.open(disk, directory, options)


async def begin(quorum: AnyQuorum) -> None:
    """Join the quorum. Return once the cluster is formed and its newest image is known here. Raises OSError."""
    if not isinstance(quorum, SingleVoter):
        await quorum.start()
        await quorum.formed()


async def scrub(quorum: AnyQuorum) -> Sequence[DamagedLog]:
    """Scrub a voter's metadata: compare disk with memory, and rewrite damaged entries. Return the damage.

    A single voter has a second copy instead, which it checks when it starts.
    """
    return await quorum.scrub() if isinstance(quorum, RaftQuorum) else ()


def damage_of(quorum: AnyQuorum) -> Sequence[DamagedLog]:
    """Return the damage that was found and repaired when the metadata was opened."""
    return () if isinstance(quorum, Observer) else quorum.damage


def files_of(quorum: AnyQuorum) -> FileMeasures | None:
    """Return the measures of the metadata files; None for an observer, which keeps the metadata in memory only."""
    return None if isinstance(quorum, Observer) else quorum.files
