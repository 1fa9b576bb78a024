"""Every API this broker serves: a new one is a module in `handlers/` and a line here."""

from types import ModuleType

from cordwood.cluster.kafka.call import ServedApi
from cordwood.cluster.kafka.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS: tuple[ModuleType, ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    incremental_alter_configs,
    describe_cluster,
    describe_producers,
)


def served_apis() -> tuple[ServedApi, ...]:
    """What ApiVersions tells, by API key."""
    return tuple(
        sorted(
            ServedApi(int(module.KEY), getattr(module, "ADVERTISED_FROM", module.VERSIONS[0]), module.VERSIONS[-1])
            for module in HANDLERS
        )
    )
