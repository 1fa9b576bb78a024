"""Groups of the new kinds in simulated clusters: their settings, and the members that are drawn from a seed."""

import random

from cordwood.chaos.sim.consumer_member import MemberPlan
from cordwood.chaos.sim.share_member import SharePlan

CONSUMER_GROUP, CONSUMER_GROUP_NUMBER = "consumer-group", 100
SHARE_GROUP, SHARE_GROUP_NUMBER = "share-group", 200
DELIVERY_LIMIT = 5
LOCK_MS = 2000

TOMBSTONE_SETTINGS: dict[str, object] = {"log_cleaner_delete_retention_ms": 24 * 3600 * 1000}
"""A member that leaves is a tombstone, and brokers are away for longer than the shortest retention of other plans: a
deleted member may come back then, as `docs/guarantees.md` says."""
CONSUMER_SETTINGS: dict[str, object] = {
    **TOMBSTONE_SETTINGS,
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 3000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 300,
}
SHARE_SETTINGS: dict[str, object] = {
    **TOMBSTONE_SETTINGS,
    "group_share_min_session_timeout_ms": 1000,
    "group_share_session_timeout_ms": 3000,
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_heartbeat_interval_ms": 300,
    "group_share_min_record_lock_duration_ms": 1000,
    "group_share_record_lock_duration_ms": LOCK_MS,
    "group_share_delivery_count_limit": DELIVERY_LIMIT,
    "share_coordinator_state_topic_num_partitions": 2,
    "share_coordinator_state_topic_replication_factor": 3,
}


def drawn_consumer_group(rng: random.Random) -> tuple[MemberPlan, ...]:
    """Draw the members of one group. In some groups they have either protocol, in each life another one."""
    assignor = rng.choice((None, "uniform", "range"))
    pattern = rng.choice((None, None, "cha.*", "chaos|side"))
    classic_share = rng.choice((0.0, 0.0, 0.5))
    life_s = rng.choice((1.0, 5.0, 20.0))
    return tuple(
        MemberPlan(
            CONSUMER_GROUP,
            CONSUMER_GROUP_NUMBER,
            assignor=assignor,
            pattern=rng.choice((None, pattern)),
            is_static=rng.random() < 0.25,
            life_s=life_s,
            slow_share=rng.choice((0.0, 0.2)),
            lost_share=rng.choice((0.0, 0.05)),
            classic_share=classic_share,
        )
        for _ in range(rng.choice((2, 3, 4)))
    )


def drawn_share_group(rng: random.Random) -> tuple[SharePlan, ...]:
    """Draw the members of one share group."""
    life_s, records_max = rng.choice((1.0, 5.0, 20.0)), rng.choice((5, 50, 500))
    has_dead_letters = rng.random() < 0.5
    return tuple(
        SharePlan(
            SHARE_GROUP,
            SHARE_GROUP_NUMBER,
            has_dead_letters=has_dead_letters,
            life_s=life_s,
            release_share=rng.choice((0.0, 0.1)),
            reject_share=rng.choice((0.0, 0.05)),
            renew_share=rng.choice((0.0, 0.02)),
            forget_share=rng.choice((0.0, 0.02)),
            records_max=records_max,
            is_record_limited=rng.random() < 0.5,
        )
        for _ in range(rng.choice((2, 3)))
    )
