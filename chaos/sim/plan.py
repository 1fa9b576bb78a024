"""The plan of a run, drawn from its seed: cluster size, speeds, clients, administrator and faults.

Every seed draws its own mix ("swarm testing", Groce and others, 2012): some clusters have slow disks and no kills,
others are killed all the time. A mix that is common to all seeds would hide bugs that only a rare mix shows.
"""

import random
from dataclasses import dataclass, replace

from cordwood.chaos.history import ACKS_ALL
from cordwood.chaos.sim.chores import Chore, Due, drawn_chores, drawn_directory_changes
from cordwood.chaos.sim.consumer_member import MemberPlan
from cordwood.chaos.sim.group_plans import (
    CONSUMER_SETTINGS,
    SHARE_SETTINGS,
    drawn_consumer_group,
    drawn_share_group,
)
from cordwood.chaos.sim.producer import ProducerPlan, Retries
from cordwood.chaos.sim.schedule import (
    FaultKind,
    ScheduledFault,
    TargetChoice,
    drawn,
    drawn_apart,
    drawn_at_coordinator,
    drawn_for_coordinators,
    drawn_losses,
    drawn_lost_end,
)
from cordwood.chaos.sim.share_member import SharePlan
from cordwood.chaos.sim.store_faults import StoreFault, drawn_store_faults
from cordwood.chaos.sim.transactional_client import TransactionalPlan
from cordwood.cluster.config.settings import Settings

TOPIC = "chaos"
REPLICATION_FACTOR = 3
MIN_ISR = 2
KIB = 1024
COORDINATORS = 2
"""Partitions of the internal topics."""
TRANSACTIONS_SHARE = 0.125
"""The share of seeds with transactional clients."""
CONSUMER_GROUPS_SHARE = 0.125
"""The share of seeds with a group of the consumer protocol (KIP-848)."""
SHARE_GROUPS_SHARE = 0.125
"""The share of seeds with a share group (KIP-932)."""
ARCHIVE_SHARE = 0.125
"""The share of seeds with an archive."""
COMPACTED_SHARE = 0.25
"""The share of seeds without transactions whose topic is compacted."""
LYING_SHARE = 0.05
"""The share of seeds with a further cluster on lying disks."""
DISKS_S = (0.0001, 0.001), (0.0001, 0.002), (0.001, 0.02)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before the run begins. Times are simulated seconds."""

    seed: int
    seconds: float
    brokers: int
    voters: int
    partitions: int
    latency_s: tuple[float, float]
    disk_s: tuple[float, float]
    split_share: float
    clock_rates: tuple[float, ...]
    settings: dict[str, object]
    """Broker settings besides addresses, by attribute of Settings."""
    producers: tuple[ProducerPlan, ...]
    consumers: int
    members: int
    """The number of members of the one consumer group."""
    faults: tuple[ScheduledFault, ...]
    seekers: int = 0
    """The number of consumers that repeatedly seek and restart."""
    chores: tuple[Due, ...] = ()
    """The actions of the administrator."""
    further_disks_s: tuple[tuple[float, float], ...] = ()
    """The latencies of further log directories of each broker. `disk_s` is that of the first."""

    cut_share: float = 0.0
    """The share of jobs in brokers' threads that are interrupted at disk calls (`cut_jobs`)."""
    has_lying_disks: bool = False
    """Whether a further cluster is run on disks that lose synced data (`lying_disks`)."""
    transactional: tuple[TransactionalPlan, ...] = ()
    """The clients with transactions, one per transactional id."""
    committed_readers: int = 0
    """The number of consumers with the isolation level read_committed."""
    consumer_members: tuple[MemberPlan, ...] = ()
    """The member programs of groups of the consumer protocol."""
    share_members: tuple[SharePlan, ...] = ()
    """The member programs of share groups."""
    has_archive: bool = False
    """Whether all topics are archived in a simulated object store (`object_store`)."""
    store_faults: tuple[StoreFault, ...] = ()
    has_compacted_topic: bool = False
    """Whether the topic is compacted. Each record then has a key of its own, so that the history stays whole."""

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def disks_s(self) -> tuple[tuple[float, float], ...]:
        return (self.disk_s, *self.further_disks_s)

    def broker_settings(self, broker_id: int, voters: tuple[str, ...], listener: str, data: str) -> Settings:
        """Return the settings of one broker."""
        given: dict[str, object] = {
            "node_id": broker_id,
            "log_dirs": (data, *(f"{data}-{number}" for number in range(2, len(self.disks_s) + 1))),
            "controller_quorum_voters": voters,
            "listeners": (listener,),
            **self.settings,
        }
        return Settings(given=frozenset(given), **given)  # type: ignore[arg-type]


def plan_of(seed: int, seconds: float = 30.0) -> Plan:
    """Return the plan of this seed."""
    plan, rng = _without_transactions(seed, seconds), random.Random(f"transactions of {seed}")
    if rng.random() < TRANSACTIONS_SHARE:
        plan = with_transactions(plan, rng)
    elif random.Random(f"compaction of {seed}").random() < COMPACTED_SHARE:
        plan = with_compacted_topic(plan)
    rng = random.Random(f"consumer groups of {seed}")
    if rng.random() < CONSUMER_GROUPS_SHARE:
        plan = with_consumer_group(plan, rng)
    rng = random.Random(f"share groups of {seed}")
    if rng.random() < SHARE_GROUPS_SHARE:
        plan = with_share_group(plan, rng)
    rng = random.Random(f"archive of {seed}")
    return with_archive(plan, rng) if rng.random() < ARCHIVE_SHARE else plan


def with_compacted_topic(plan: Plan) -> Plan:
    """Return the plan with a topic that is compacted, while retention deletes from it, too."""
    return replace(
        plan, has_compacted_topic=True, settings={**plan.settings, "log_cleanup_policy": ("compact", "delete")}
    )


def without_other_writers(plan: Plan) -> Plan:
    """Return the plan with three fast brokers, and without clients that write outside transactions."""
    return replace(
        plan,
        brokers=3,
        voters=3,
        disk_s=(0.0001, 0.001),
        further_disks_s=(),
        clock_rates=(1.0,) * 3,
        producers=(),
        consumers=1,
        members=0,
        seekers=0,
        chores=(),
        cut_share=0.0,
    )


def transactional_plan_of(seed: int, seconds: float = 10.0) -> Plan:
    """Return a plan of this seed with little but transactions: fast brokers, which fail all the time."""
    rng = random.Random(f"transactions alone of {seed}")
    return replace(
        without_other_writers(_without_transactions(seed, seconds)),
        partitions=rng.choice((2, 4)),
        latency_s=rng.choice(((0.0001, 0.001), (0.0002, 0.005))),
        has_lying_disks=False,
        transactional=tuple(_hasty(rng, is_v2) for is_v2 in (False, True, rng.random() < 0.5)),
        committed_readers=2,
        faults=drawn_for_coordinators(rng, seconds),
    )


def consumer_group_plan_of(seed: int, seconds: float = 15.0) -> Plan:
    """Return a plan of this seed with little but a group of the consumer protocol: fast brokers, which fail a lot."""
    rng = random.Random(f"a consumer group alone of {seed}")
    plan = _for_groups(seed, seconds, rng)
    return replace(plan, consumer_members=drawn_consumer_group(rng), settings={**plan.settings, **CONSUMER_SETTINGS})


def share_group_plan_of(seed: int, seconds: float = 15.0) -> Plan:
    """Return the same with a share group."""
    rng = random.Random(f"a share group alone of {seed}")
    plan = _for_groups(seed, seconds, rng)
    return replace(plan, share_members=drawn_share_group(rng), settings={**plan.settings, **SHARE_SETTINGS})


def _for_groups(seed: int, seconds: float, rng: random.Random) -> Plan:
    return replace(
        without_other_writers(_without_transactions(seed, seconds)),
        partitions=rng.choice((2, 4)),
        latency_s=rng.choice(((0.0001, 0.001), (0.0002, 0.005))),
        has_lying_disks=False,
        producers=(ProducerPlan(True, ACKS_ALL, rng.choice((0.02, 0.1)), 8, 64),),
        faults=drawn_for_coordinators(rng, seconds, TargetChoice.GROUPS),
    )


def _hasty(rng: random.Random, is_v2: bool) -> TransactionalPlan:
    return TransactionalPlan(
        is_v2=is_v2,
        interval_s=0.01,
        timeout_s=rng.choice((0.5, 3.0)),
        patience_s=rng.choice((0.3, 3.0)),
        payload_bytes_max=32,
        input_partition=rng.choice((None, 0, 1)),
        death_share=rng.choice((0.0, 0.1)),
        zombie_share=rng.choice((0.0, 0.05)),
        delayed_share=rng.choice((0.0, 0.5)),
    )


def with_transactions(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with transactional clients, consumers that read_committed, and faults of coordinators."""
    faults = (*plan.faults, *drawn_at_coordinator(rng, plan.seconds))
    return replace(
        plan,
        transactional=tuple(_transactional(rng, plan.partitions) for _ in range(rng.choice((1, 2, 3)))),
        committed_readers=rng.choice((1, 2)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def with_consumer_group(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with a group of the consumer protocol, and faults of group coordinators."""
    return replace(
        _with_faults_of_groups(plan, rng),
        consumer_members=drawn_consumer_group(rng),
        settings={**plan.settings, **CONSUMER_SETTINGS},
    )


def with_share_group(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with a share group, and faults of group coordinators and share coordinators."""
    return replace(
        _with_faults_of_groups(plan, rng),
        share_members=drawn_share_group(rng),
        settings={**plan.settings, **SHARE_SETTINGS},
    )


def _with_faults_of_groups(plan: Plan, rng: random.Random) -> Plan:
    faults = (*plan.faults, *drawn_at_coordinator(rng, plan.seconds, TargetChoice.GROUPS))
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def with_archive(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with an archive of all topics, and small segments."""
    settings = {
        **plan.settings,
        "archive_url": "s3://simulated/archive",
        "remote_storage_enable": True,
        "archive_grace_ms": rng.choice((3000, 20_000)),
        "archive_roll_ms": rng.choice((1000, 5000)),
        "archive_compacted_delay_ms": rng.choice((0, 5000)),
        "archive_upload_bytes_per_second": rng.choice((64 * KIB, 100 * KIB * KIB)),
        "log_segment_bytes": rng.choice((2 * KIB, 8 * KIB, 32 * KIB)),
        "log_roll_ms": rng.choice((2000, 20_000)),
        "log_local_retention_bytes": rng.choice((-2, 0, 20 * KIB)),
        "log_local_retention_ms": rng.choice((-2, 1000)),
        "archive_cache_bytes": rng.choice((4 * KIB, 100 * KIB, 100 * KIB * KIB)),
        "log_retention_check_interval_ms": 1000,
        "log_segment_delete_delay_ms": rng.choice((0, 5000)),
    }
    return replace(plan, settings=settings, has_archive=True, store_faults=drawn_store_faults(rng, plan.seconds))


def _transactional(rng: random.Random, partitions: int) -> TransactionalPlan:
    return TransactionalPlan(
        is_v2=rng.random() < 0.5,
        interval_s=rng.choice((0.02, 0.1, 0.4)),
        timeout_s=rng.choice((1.0, 3.0, 8.0)),
        patience_s=rng.choice((0.5, 3.0, 30.0)),
        payload_bytes_max=rng.choice((32, 200, 2000)),
        input_partition=rng.choice((None, rng.randrange(partitions))),
        death_share=rng.choice((0.0, 0.05, 0.2)),
        zombie_share=rng.choice((0.0, 0.05)),
        delayed_share=rng.choice((0.0, 0.2)),
    )


def _without_transactions(seed: int, seconds: float) -> Plan:
    rng, users = random.Random(f"plan of {seed}"), random.Random(f"users of {seed}")
    brokers = rng.choice((3, 3, 3, 3, 4, 5))
    latency_s = rng.choice(((0.0001, 0.001), (0.0002, 0.003), (0.001, 0.02)))
    plan = Plan(
        seed=seed,
        seconds=seconds,
        brokers=brokers,
        voters=rng.choice((3, 5)) if brokers == 5 else 3,
        partitions=rng.choice((1, 2, 3, 4)),
        latency_s=latency_s,
        disk_s=rng.choice(DISKS_S),
        split_share=rng.choice((0.0, 0.0, 0.1)),
        clock_rates=tuple(rng.choice((1.0, rng.uniform(0.98, 1.02))) for _ in range(brokers)),
        settings={
            **_settings(rng),
            "log_retention_check_interval_ms": users.choice((500, 5000)),
            **_cleaner_settings(seed),
        },
        producers=(
            *(_as_users_have_it(users, _producer(rng)) for _ in range(rng.choice((1, 2, 3)))),
            *_careless(users),
        ),
        consumers=rng.choice((1, 2)),
        members=rng.choice((0, 1, 2, 3)),
        seekers=users.choice((0, 1, 1, 2)),
        faults=drawn(rng, seconds),
        chores=drawn_chores(users, seconds),
    )
    apart = [fault for fault in drawn_apart(random.Random(f"faults apart of {seed}"), seconds) if _suits(plan, fault)]
    losses = drawn_losses(random.Random(f"losses of {seed}"), seconds)
    lost_ends = drawn_lost_end(random.Random(f"lost end of {seed}"), seconds)
    faults = sorted((*plan.faults, *apart, *losses, *lost_ends), key=lambda fault: fault.at_s)
    further_disks_s = _further_disks(seed)
    moves = drawn_directory_changes(random.Random(f"moves of {seed}"), seconds) if further_disks_s else ()
    return replace(
        plan,
        chores=tuple(sorted((*plan.chores, *moves), key=lambda due: due.at_s)),
        further_disks_s=further_disks_s,
        faults=tuple(faults),
        cut_share=_cut_share(seed),
        has_lying_disks=random.Random(f"lying disks of {seed}").random() < LYING_SHARE,
    )


def _further_disks(seed: int) -> tuple[tuple[float, float], ...]:
    """Return the latency of a second log directory, or nothing."""
    rng = random.Random(f"log directories of {seed}")
    return () if rng.random() < 0.5 else (rng.choice(DISKS_S),)


def _suits(plan: Plan, fault: ScheduledFault) -> bool:
    """Return whether the records of one disk are elsewhere too while two processes have one id: not with min ISR 1."""
    return fault.kind is not FaultKind.SECOND_PROCESS or all(due.chore is not Chore.MIN_ISR for due in plan.chores)


def _cut_share(seed: int) -> float:
    return random.Random(f"jobs of {seed}").choice((0.0, 0.0, 0.2, 1.0))


def _settings(rng: random.Random) -> dict[str, object]:
    return {
        "log_segment_bytes": rng.choice((4 * KIB, 32 * KIB, KIB * KIB)),
        "metadata_log_max_record_bytes_between_snapshots": rng.choice((2 * KIB, 16 * KIB, KIB * KIB)),
        "log_scrub_bytes_per_second": KIB * KIB,
        "log_dir_headroom_bytes": 64 * KIB,
        "replica_lag_time_max_ms": rng.choice((1000, 3000, 10_000)),
        "replica_catchup_max_bytes_per_second": rng.choice((64 * KIB, 100 * KIB * KIB)),
        "leader_imbalance_check_interval_seconds": rng.choice((3, 300)),
        "offsets_topic_num_partitions": COORDINATORS,
        "offsets_topic_replication_factor": REPLICATION_FACTOR,
        "transaction_state_log_num_partitions": COORDINATORS,
        "transaction_state_log_replication_factor": REPLICATION_FACTOR,
        "share_coordinator_state_topic_num_partitions": COORDINATORS,
        "share_coordinator_state_topic_replication_factor": REPLICATION_FACTOR,
        "min_insync_replicas": MIN_ISR,
        "default_replication_factor": REPLICATION_FACTOR,
        "controlled_shutdown_max_wait_ms": 5000,
        "controller_quorum_secret": rng.choice(("", "a secret")),
    }


def _cleaner_settings(seed: int) -> dict[str, object]:
    """Return settings by which logs of little data are compacted many times."""
    rng = random.Random(f"log cleaner of {seed}")
    return {
        "log_cleaner_backoff_ms": rng.choice((100, 500, 15_000)),
        "log_cleaner_threads": rng.choice((1, 2)),
        "log_cleaner_min_cleanable_ratio": rng.choice((0.0, 0.1, 0.5)),
        "log_cleaner_delete_retention_ms": rng.choice((0, 1000, 24 * 3600 * 1000)),
        "log_cleaner_max_compaction_lag_ms": rng.choice((1000, (1 << 63) - 1)),
        "offsets_topic_segment_bytes": rng.choice((KIB, 8 * KIB, 100 * KIB * KIB)),
        "transaction_state_log_segment_bytes": rng.choice((KIB, 8 * KIB, 100 * KIB * KIB)),
    }


def _producer(rng: random.Random) -> ProducerPlan:
    is_idempotent = rng.random() < 0.8
    return ProducerPlan(
        is_idempotent=is_idempotent,
        acks=ACKS_ALL if is_idempotent else rng.choice((ACKS_ALL, 1)),
        interval_s=rng.choice((0.05, 0.2, 0.5)),
        in_flight_max=rng.choice((1, 8, 64)),
        payload_bytes_max=rng.choice((32, 200, 2000)),
    )


def _as_users_have_it(rng: random.Random, producer: ProducerPlan) -> ProducerPlan:
    """Return the plan of a producer with several batches in flight, if it is idempotent, as client libraries do."""
    if not producer.is_idempotent:
        return producer
    return replace(producer, batches_in_flight=rng.choice((1, 5, 5)), retries=rng.choice(tuple(Retries)))


def _careless(rng: random.Random) -> tuple[ProducerPlan, ...]:
    """Return the plan of a producer with acks=1 or acks=0, or none. Its acknowledged records may be lost."""
    if rng.random() < 0.6:
        return ()
    return (ProducerPlan(False, rng.choice((0, 1)), rng.choice((0.1, 0.5)), 8, 200),)
