"""Settings of transactions."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import DAY_MS, SECOND_MS
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import TopicCreation
from cordwood.cluster.proposals.topics import TRANSACTION_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Kafka's `transaction.*` settings, with its defaults but for the interval of the sweeps."""

    max_timeout_ms: int = 900 * SECOND_MS
    id_expiration_ms: int = 7 * DAY_MS
    sweep_interval_ms: int = 2 * SECOND_MS
    completion_wait_s: float = 1.0
    """How long a request waits for the markers of the last transaction. After a refusal, clients ask again too late."""


def transaction_settings(settings: Settings) -> TransactionSettings:
    """Return the transaction settings of a broker."""
    return TransactionSettings(
        max_timeout_ms=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        sweep_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
    )


def transaction_topic(settings: Settings) -> TopicCreation:
    """Return how `__transaction_state` is created."""
    return TopicCreation(
        TRANSACTION_STATE,
        partitions=settings.transaction_state_log_num_partitions,
        replication_factor=settings.transaction_state_log_replication_factor,
        segment_bytes=settings.transaction_state_log_segment_bytes,
    )
