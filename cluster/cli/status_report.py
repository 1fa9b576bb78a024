"""Report of `cordwood status`: as JSON, or as a summary with two tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cordwood.cluster.cli.output import size_text, table
from cordwood.cluster.operations.view import BrokerInfo, ClusterView, PartitionInfo, ReplicaInfo

if TYPE_CHECKING:
    from rich.console import RenderableType

PARTITIONS_SHOWN = 20
BROKER_HEADINGS = ["ID", "ADDRESS", "STATE", "ROLE", "LAG", "LEADS", "IN SYNC", "SIZE", "FREE"]
PARTITION_HEADINGS = ["TOPIC", "PARTITION", "LEADER", "ISR", "RECORDS BEHIND"]


def why_old(view: ClusterView) -> str | None:
    """Return why the view may be out of date, and what to do; None if a majority of the voters answers."""
    voters, answering = view.quorum.voters, _answering(view)
    count = len(answering.intersection(voters))
    if count > len(voters) // 2:
        return None
    return (
        f"no majority of the voters answers ({count} of {len(voters)}): the state of the others is unknown,"
        " and the metadata cannot be changed. Start the voters that are down; /readyz of the running ones"
        " names the reason."
    )


def as_json(view: ClusterView) -> dict[str, Any]:
    """Return the whole view as JSON. Lags are in records, sizes in bytes; null if unknown."""
    return {
        "cluster_id": view.cluster_id,
        "controller": view.quorum.leader,
        "controller_epoch": view.quorum.epoch,
        "voters": list(view.quorum.voters),
        "is_old": why_old(view) is not None,
        **counts(view),
        "brokers": [_broker_json(view, broker) for broker in view.brokers],
        "partitions": [_partition_json(partition) for partition in view.partitions],
    }


def counts(view: ClusterView) -> dict[str, int]:
    """Return the numbers of partitions that are under-replicated, under min.insync.replicas, and offline."""
    return {
        "under_replicated": sum(partition.is_under_replicated for partition in view.partitions),
        "under_min_isr": sum(len(partition.isr) < partition.min_isr for partition in view.partitions),
        "offline": sum(partition.leader is None for partition in view.partitions),
    }


def as_tables(view: ClusterView, *, all_partitions: bool) -> "RenderableType":
    """Return summary and tables. Without `all_partitions`, only the first under-replicated or offline partitions."""
    from rich.console import Group

    chosen = [part for part in view.partitions if all_partitions or part.is_under_replicated or part.leader is None]
    shown = chosen if all_partitions else chosen[:PARTITIONS_SHOWN]
    brokers = _broker_table(view)
    parts: list[RenderableType] = [_summary(view), brokers, *_complaints(view)]
    if shown:
        parts += ["", table(PARTITION_HEADINGS, map(_partition_row, shown))]
    if len(shown) < len(chosen):
        parts.append(f"… and {len(chosen) - len(shown)} more: --all shows every partition.")
    return Group(*parts)


def _broker_table(view: ClusterView) -> "RenderableType":
    """Return the table of brokers, with their racks if they have any."""
    rows, headings = [_broker_row(view, broker) for broker in view.brokers], list(BROKER_HEADINGS)
    if any(broker.rack for broker in view.brokers):
        headings.insert(2, "RACK")
        for row, broker in zip(rows, view.brokers, strict=True):
            row.insert(2, broker.rack)
    return table(headings, rows)


def _summary(view: ClusterView) -> str:
    controller = "no controller" if view.quorum.leader is None else f"controller {view.quorum.leader}"
    short = counts(view)
    known = ", ".join(map(str, sorted(_answering(view)))) or "somebody"
    old = f", last known state on broker {known}" if why_old(view) else ""
    return (
        f"cluster {view.cluster_id}{old}: {controller}; {len(view.partitions)} partitions: "
        f"{short['under_replicated']} under-replicated, {short['under_min_isr']} under min.insync.replicas, "
        f"{short['offline']} offline"
    )


def _complaints(view: ClusterView) -> Iterator[str]:
    for broker in view.brokers:
        if broker.is_alive and broker.log_directories is None:
            yield f"broker {broker.broker_id} does not report its log directories"
        for directory in broker.log_directories or ():
            if directory.error:
                yield f"broker {broker.broker_id}: log directory {directory.path} is offline ({directory.error})"


def _answering(view: ClusterView) -> frozenset[int]:
    return frozenset(broker.broker_id for broker in view.brokers if broker.log_directories is not None)


def _state(view: ClusterView, broker: BrokerInfo) -> str:
    """Return a broker's state. Without a majority of the voters no broker is declared down."""
    if not broker.is_alive:
        return "down"
    return "silent" if why_old(view) and broker.log_directories is None else "alive"


def _replicas_on(view: ClusterView, broker_id: int) -> list[ReplicaInfo]:
    return [replica for part in view.partitions for replica in part.replicas if replica.broker_id == broker_id]


def _leads(view: ClusterView, broker_id: int) -> int:
    return sum(partition.leader == broker_id for partition in view.partitions)


def _role(view: ClusterView, broker_id: int) -> str:
    if broker_id == view.quorum.leader:
        return "controller"
    return "voter" if broker_id in view.quorum.voters else "observer"


def _broker_json(view: ClusterView, broker: BrokerInfo) -> dict[str, Any]:
    replicas = _replicas_on(view, broker.broker_id)
    directories = [
        {
            "path": directory.path,
            "error": directory.error,
            "usable_bytes": directory.usable_bytes,
            "total_bytes": directory.total_bytes,
        }
        for directory in broker.log_directories or ()
    ]
    return {
        "id": broker.broker_id,
        "address": broker.address,
        "rack": broker.rack,
        "alive": broker.is_alive,
        "metadata_role": _role(view, broker.broker_id),
        "metadata_lag": view.quorum.lag(broker.broker_id),
        "leads": _leads(view, broker.broker_id),
        "replicas": len(replicas),
        "replicas_in_sync": sum(replica.is_in_sync for replica in replicas),
        "bytes": None if broker.log_directories is None else sum(replica.size_bytes or 0 for replica in replicas),
        "log_dirs": directories,
    }


def _partition_json(partition: PartitionInfo) -> dict[str, Any]:
    replicas = [
        {
            "broker": replica.broker_id,
            "in_sync": replica.is_in_sync,
            "offline": replica.is_offline,
            "lag": replica.lag_records,
            "bytes": replica.size_bytes,
        }
        for replica in partition.replicas
    ]
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "leader": partition.leader,
        "isr": sorted(partition.isr),
        "min_isr": partition.min_isr,
        "replicas": replicas,
    }


def _broker_row(view: ClusterView, broker: BrokerInfo) -> list[object]:
    row = _broker_json(view, broker)
    free = [found.usable_bytes for found in broker.log_directories or () if found.usable_bytes is not None]
    return [
        broker.broker_id,
        broker.address,
        _state(view, broker),
        row["metadata_role"],
        row["metadata_lag"],
        row["leads"],
        f"{row['replicas_in_sync']} of {row['replicas']}",
        _in_words(row["bytes"]),
        _in_words(min(free, default=None)),
    ]


def _partition_row(partition: PartitionInfo) -> list[object]:
    lags = [
        f"{replica.broker_id}: {_behind(replica)}"
        for replica in partition.replicas
        if replica.broker_id != partition.leader
    ]
    isr = ",".join(map(str, sorted(partition.isr)))
    return [partition.topic, partition.index, partition.leader, isr, ", ".join(lags) or None]


def _behind(replica: ReplicaInfo) -> str:
    if replica.is_offline:
        return "away"
    return "unknown" if replica.lag_records is None else str(replica.lag_records)


def _in_words(size: int | None) -> str | None:
    return None if size is None else size_text(size)
