"""Scaling with partitions on five brokers without load: creation, memory, idle cost, metadata changes and failover."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.metadata.v8 import request as metadata

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.failover import NotLedAgain
from cordwood.bench.growth.place import SETTINGS, BenchPlace, come_to_rest, cpu_us, idle_percent
from cordwood.bench.growth.wire import BlockingClient, OffsetsFrame, RequestFailed
from cordwood.bench.machine import largest_resident_mb
from cordwood.chaos.live.broker_views import PartitionView
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.process import wait_for
from cordwood.client.blocking import BlockingConnection, connect

BROKERS, REPLICAS = 5, 3
COUNTS = (1000, 10_000, 100_000)
TOPIC_PARTITIONS = 1000
CHANGES = 100
ANSWER_S = 120.0
READY_S = 300.0
IDLE_S = 30.0
CREATE_MAX_S, FAILOVER_MAX_S, MEMORY_MAX_MB, IDLE_MAX_PERCENT = 60.0, 5.0, 300.0, 10.0
CHANGE_MAX = 1.5
TOPIC_RESOURCE, SET = 2, 0


def measure(place: BenchPlace) -> Area:
    """Measure each count. Counts are scaled too, so that a trial run is small."""
    area = Area("five brokers", f"partitions of {REPLICAS} replicas each on five brokers")
    counts = sorted({place.share(count, least=10) for count in COUNTS})
    for count in counts:
        place.say(f"  {count:,} partitions")
        with LocalCluster(place.directory / f"five-{count}", BROKERS, settings=SETTINGS) as cluster:
            _measure(area, place, cluster, count)
    last = {curve.name: curve.points[-1][1] for curve in area.curves}
    most = f"{counts[-1]:,} partitions"
    area.promise(f"creation of {most}", last["creation"], CREATE_MAX_S, "s")
    area.promise(f"failover of {most}", last["failover"], FAILOVER_MAX_S, "s")
    area.promise(f"memory of the largest broker with {most}", last["memory of one"], MEMORY_MAX_MB, "MB")
    area.promise(f"idle with {most}, each broker", last["idle, each"], IDLE_MAX_PERCENT, "% of a core")
    change = area.curve("a topic's config changed, on all brokers", "µs of CPU")
    area.promise(f"a config change with {most}, against {counts[0]:,}", change.growth, CHANGE_MAX, "x")
    return area


def _measure(area: Area, place: BenchPlace, cluster: LocalCluster, count: int) -> None:
    addresses = [broker.address for broker in cluster.brokers.values()]
    pids = [broker.pid for broker in cluster.brokers.values()]
    names = [f"growth-{number:03}" for number in range(-(-count // TOPIC_PARTITIONS))]
    with connect(addresses[0], ANSWER_S) as client:
        why = "Every broker opens the logs of its replicas, and every follower begins a stream for each."
        began = time.perf_counter()
        for number, name in enumerate(names):
            _create(client, name, min(TOPIC_PARTITIONS, count - number * TOPIC_PARTITIONS))
        created_s = time.perf_counter() - began
        views = _views(client, names)
        began = time.perf_counter()
        _wait_served(addresses, views)
        area.curve("creation", "s", why).add(count, created_s + time.perf_counter() - began)
        come_to_rest(pids)
        why = "A partition keeps its log, its role and an entry in the metadata."
        area.curve("memory of one", "MB", why).add(count, largest_resident_mb(pids))
        area.curve("idle, each", "% of a core").add(count, idle_percent(pids, place.seconds(IDLE_S)))
        changes = place.share(CHANGES, least=20)

        def change() -> None:
            for number in range(changes):
                _configure(client, names[number % len(names)], str(86_400_000 + number))

        why = "The mappings of the topics are copied for each change, without a step for each topic."
        area.curve("a topic's config changed, on all brokers", "µs of CPU", why).add(
            count, cpu_us(pids, changes, change)
        )
    area.curve("failover", "s", "Each partition that was led has a new leader to get.").add(
        count, _failover_s(cluster, views)
    )


def _create(client: BlockingConnection, name: str, partitions: int) -> None:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=REPLICAS, assignments=(), configs=()
    )
    _check(row.error_code for row in client.ask(create_topics.CreateTopicsRequest(topics=(topic,))).topics)


def _configure(client: BlockingConnection, name: str, retention_ms: str) -> None:
    config = alter_configs.AlterableConfig(name="retention.ms", config_operation=SET, value=retention_ms)
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=(config,))
    request = alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    _check(row.error_code for row in client.ask(request).responses)


def _wait_served(addresses: Sequence[str], views: Sequence[PartitionView]) -> None:
    """Wait until each leader answers for all of its partitions."""
    for leader, frame in _frames_by_leader(views).items():
        if not wait_for(partial(_serves, addresses[leader - 1], frame), READY_S):
            raise RequestFailed(f"broker {leader} does not serve within {READY_S:.0f} s")


def _failover_s(cluster: LocalCluster, views: Sequence[PartitionView]) -> float:
    """Return the seconds from SIGKILL until the other brokers answer for all partitions that the broker led.

    The first of the other replicas leads next, because all are in sync.
    """
    victim = BROKERS
    addresses = [broker.address for broker in cluster.brokers.values()]
    moved = [
        replace(view, leader=next(replica for replica in view.replicas if replica != victim))
        for view in views
        if view.leader == victim
    ]
    frames = _frames_by_leader(moved)
    # The last partition of each leader first, so that the questions take little of the brokers' time.
    last = _frames_by_leader({view.leader: view for view in moved}.values())
    began = time.perf_counter()
    cluster.brokers[victim].kill()
    for leader, frame in (*last.items(), *frames.items()):
        if not wait_for(partial(_serves, addresses[leader - 1], frame), READY_S):
            raise NotLedAgain(f"broker {leader} did not lead all of its new partitions within {READY_S:.0f} s")
    return time.perf_counter() - began


def _views(client: BlockingConnection, names: Sequence[str]) -> list[PartitionView]:
    """Return the partitions of these topics as the broker sees them."""
    return [view for name in names for view in _views_of(client, name)]


def _views_of(client: BlockingConnection, name: str) -> Iterator[PartitionView]:
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name=name),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    for topic in client.ask(request).topics:
        for row in topic.partitions:
            yield PartitionView(
                name, row.partition_index, row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes
            )


def _frames_by_leader(views: Iterable[PartitionView]) -> dict[int, OffsetsFrame]:
    by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for view in views:
        by_leader[view.leader][view.topic].append(view.index)
    return {leader: OffsetsFrame(places) for leader, places in by_leader.items()}


def _serves(address: str, frame: OffsetsFrame) -> bool:
    """Return whether the broker answers ListOffsets for all of these partitions."""
    with BlockingClient(address, ANSWER_S) as client:
        return frame.refused_in(client.exchange(frame.frame)) == 0


def _check(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise RequestFailed(f"a broker refused a request: {code!r}")
