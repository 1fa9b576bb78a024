"""The registry of served APIs: a new API is a module in `handlers/` and one line here."""

from types import ModuleType

from cordwood.cluster.kafka import wire
from cordwood.cluster.kafka.call import ServedApi
from cordwood.cluster.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_cut,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_cuts,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    drop_cut,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_raft_voter,
    write_txn_markers,
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
    find_coordinator,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    offset_commit,
    offset_fetch,
    offset_delete,
    txn_offset_commit,
    describe_groups,
    list_groups,
    delete_groups,
    describe_acls,
    create_acls,
    delete_acls,
    alter_replica_log_dirs,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_quorum,
    list_config_resources,
    describe_topic_partitions,
    unregister_broker,
    get_telemetry_subscriptions,
    push_telemetry,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    describe_transactions,
    list_transactions,
    write_txn_markers,
    sasl_handshake,
    sasl_authenticate,
    describe_client_quotas,
    alter_client_quotas,
    describe_user_scram_credentials,
    alter_user_scram_credentials,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    add_raft_voter,
    remove_raft_voter,
    update_raft_voter,
)

OWN_HANDLERS: tuple[ModuleType, ...] = (create_cut, describe_cuts, drop_cut)
"""The APIs that Kafka does not have. ApiVersions leaves them out: Kafka's clients have no name for them."""


def served_apis() -> tuple[ServedApi, ...]:
    """Return the APIs and version ranges that ApiVersions reports, by API key."""
    return tuple(
        sorted(
            ServedApi(int(module.KEY), getattr(module, "ADVERTISED_FROM", module.VERSIONS[0]), module.VERSIONS[-1])
            for module in HANDLERS
        )
    )


def items_max_of(module: ModuleType) -> int:
    """Return the maximum number of items in all arrays of one request to this API."""
    items_max: int = getattr(module, "ITEMS_MAX", wire.ITEMS_MAX)
    return items_max
