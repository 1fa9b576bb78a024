"""The report of `cordwood status`."""

import io
from dataclasses import replace

from rich.console import Console

from cordwood.cluster.cli.status_report import PARTITIONS_SHOWN, as_json, as_tables, why_old
from cordwood.cluster.operations.view import (
    BrokerInfo,
    ClusterView,
    LogDirectoryInfo,
    PartitionInfo,
    QuorumInfo,
    ReplicaInfo,
)

DISK = LogDirectoryInfo("data", None, 75_000_000_000, 250_000_000_000)
BROKEN = LogDirectoryInfo("broken", "KafkaStorageError", None, None)


def hurt_cluster(partitions: int = 1) -> ClusterView:
    """Return a cluster in which broker 2 lags and has a broken disk, and broker 3 is down."""
    brokers = (
        BrokerInfo(1, "127.0.0.1:9092", None, True, (DISK,)),
        BrokerInfo(2, "127.0.0.1:9093", "b", True, (DISK, BROKEN)),
        BrokerInfo(3, "127.0.0.1:9094", None, False, None),
    )
    replicas = (
        ReplicaInfo(1, True, False, 2_000, 0),
        ReplicaInfo(2, False, False, 1_000, 1_200),
        ReplicaInfo(3, False, True, None, None),
    )
    hurt = [PartitionInfo("hurt", index, 1, replicas, 2) for index in range(partitions)]
    gone = PartitionInfo("gone", 0, None, (ReplicaInfo(3, True, True, None, None),), 1)
    well = PartitionInfo("well", 0, 1, (ReplicaInfo(1, True, False, 500, 0),), 1)
    return ClusterView("Cid", brokers, QuorumInfo(1, 7, (1, 2, 3), {1: 100, 2: 90}), (*hurt, gone, well))


def shown(view: ClusterView, *, all_partitions: bool = False) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, markup=False, highlight=False).print(as_tables(view, all_partitions=all_partitions))
    return out.getvalue().splitlines()


def test_the_first_line_counts_what_is_short_of_something() -> None:
    assert shown(hurt_cluster())[0] == (
        "cluster Cid: controller 1; 3 partitions: 1 under-replicated, 1 under min.insync.replicas, 1 offline"
    )


def test_each_broker_has_a_line_with_its_part_and_its_disk() -> None:
    _, _, *lines = shown(hurt_cluster())
    assert [" ".join(line.split()) for line in lines[:3]] == [
        "1 127.0.0.1:9092 - alive controller 0 2 2 of 2 2.44 KiB 69.8 GiB",
        "2 127.0.0.1:9093 b alive voter 10 0 0 of 1 0.977 KiB 69.8 GiB",
        "3 127.0.0.1:9094 - down voter - 0 1 of 2 - -",
    ]
    assert lines[3] == "broker 2: log directory broken is offline (KafkaStorageError)"


def test_only_partitions_that_are_short_of_something_are_listed_unless_all_are_asked_for() -> None:
    lines = [line.split() for line in shown(hurt_cluster())]
    assert ["hurt", "0", "1", "1", "2:", "1200,", "3:", "away"] in lines
    assert ["gone", "0", "-", "3", "3:", "away"] in lines
    assert ["well", "0", "1", "1", "-"] not in lines
    assert ["well", "0", "1", "1", "-"] in [line.split() for line in shown(hurt_cluster(), all_partitions=True)]


def test_a_long_list_is_cut_and_says_so() -> None:
    lines = shown(hurt_cluster(PARTITIONS_SHOWN + 4))
    assert lines[-1] == "… and 5 more: --all shows every partition."
    assert not shown(hurt_cluster(PARTITIONS_SHOWN + 4), all_partitions=True)[-1].startswith("…")


def test_a_broker_that_does_not_say_what_it_holds_is_named() -> None:
    view = ClusterView("Cid", (BrokerInfo(1, "h:1", None, True, None),), QuorumInfo(None, 0, (1,), {}), ())
    lines = shown(view)
    assert "no controller" in lines[0]
    assert "broker 1 does not report its log directories" in lines


def test_json_has_every_replica_with_its_lag() -> None:
    report = as_json(hurt_cluster())
    assert (report["controller"], report["under_replicated"], report["offline"]) == (1, 1, 1)
    assert [broker["metadata_lag"] for broker in report["brokers"]] == [0, 10, None]
    assert report["partitions"][0] == {
        "topic": "hurt", "partition": 0, "leader": 1, "isr": [1], "min_isr": 2,
        "replicas": [
            {"broker": 1, "in_sync": True, "offline": False, "lag": 0, "bytes": 2_000},
            {"broker": 2, "in_sync": False, "offline": False, "lag": 1_200, "bytes": 1_000},
            {"broker": 3, "in_sync": False, "offline": True, "lag": None, "bytes": None},
        ],
    }  # fmt: skip


def test_what_is_known_without_a_majority_is_marked_as_old() -> None:
    brokers = (
        BrokerInfo(1, "127.0.0.1:9092", None, True, None),
        BrokerInfo(2, "127.0.0.1:9093", None, False, None),
        BrokerInfo(3, "127.0.0.1:9094", None, True, (DISK,)),
    )
    view = replace(hurt_cluster(), brokers=brokers)
    summary, _, *lines = shown(view)
    assert summary.startswith("cluster Cid, last known state on broker 3: ")
    assert [line.split()[2] for line in lines[:3]] == ["silent", "down", "alive"]
    assert as_json(view)["is_old"]
    assert "no majority of the voters answers (1 of 3)" in (why_old(view) or "")


def test_a_majority_that_answers_is_not_old() -> None:
    assert why_old(hurt_cluster()) is None
    assert not as_json(hurt_cluster())["is_old"]
