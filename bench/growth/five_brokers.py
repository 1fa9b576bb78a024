"""Scaling with partitions on five brokers without load: creation, memory, idle cost, metadata changes and failover."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v8 import request as metadata

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.failover import NotLedAgain
from cordwood.bench.growth.place import SETTINGS, BenchPlace, cpu_us, idle_percent
from cordwood.bench.growth.wire import RequestFailed
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
TOPIC_RESOURCE, SET, LATEST = 2, 0, -1


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
        _wait_served(addresses, names)
        area.curve("creation", "s", why).add(count, time.perf_counter() - began)
        _wait_idle(pids)
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
        count, _failover_s(cluster, names)
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


def _wait_served(addresses: Sequence[str], names: Sequence[str]) -> None:
    """Wait until every broker sees every replica in sync, and every leader answers for its partitions."""
    for address in addresses:
        with connect(address, ANSWER_S) as client:
            for name in names:
                _wait(partial(_is_in_sync, client, name), f"{name} is not in sync")
    with connect(addresses[0], ANSWER_S) as client:
        by_leader = _by_leader(view for name in names for view in _views(client, name))
    for leader, places in by_leader.items():
        _wait(partial(_serves, addresses[leader - 1], places), f"broker {leader} does not serve")


def _failover_s(cluster: LocalCluster, names: Sequence[str]) -> float:
    """Return the seconds from SIGKILL until the other brokers serve all partitions that the broker led."""
    victim = BROKERS
    others = {id_: broker.address for id_, broker in cluster.brokers.items() if id_ != victim}
    with connect(next(iter(others.values())), ANSWER_S) as client:
        led = Counter(view.topic for name in names for view in _views(client, name) if view.leader == victim)
        places = {(view.topic, view.index) for name in led for view in _views(client, name) if view.leader == victim}
        began = time.perf_counter()
        cluster.brokers[victim].kill()
        _wait(lambda: victim not in {view.leader for view in _views(client, max(led))}, "the broker still leads")
        views = [view for name in led for view in _views(client, name) if (view.topic, view.index) in places]
    if any(view.leader in (-1, victim) for view in views):
        raise NotLedAgain("some partitions have no other leader, although the broker is fenced")
    for leader, moved in _by_leader(views).items():
        _wait(partial(_serves, others[leader], moved), f"broker {leader} does not serve")
    return time.perf_counter() - began


def _views(client: BlockingConnection, name: str) -> list[PartitionView]:
    """Return the partitions of a topic as the broker sees them."""
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name=name),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return [
        PartitionView(name, row.partition_index, row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes)
        for topic in client.ask(request).topics
        for row in topic.partitions
    ]


def _is_in_sync(client: BlockingConnection, name: str) -> bool:
    return all(view.is_in_sync for view in _views(client, name))


def _by_leader(views: Iterable[PartitionView]) -> dict[int, list[tuple[str, int]]]:
    by_leader: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for view in views:
        by_leader[view.leader].append((view.topic, view.index))
    return by_leader


def _serves(address: str, places: Sequence[tuple[str, int]]) -> bool:
    """Return whether the broker answers ListOffsets for all of its partitions."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(index)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=tuple(
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes
                ),
            )
            for topic, indexes in by_topic.items()
        ),
    )
    with connect(address, ANSWER_S) as client:
        answer = client.ask(request)
    return not any(row.error_code for topic in answer.topics for row in topic.partitions)


def _wait_idle(pids: Sequence[int]) -> None:
    """Wait until the brokers have finished what the creation left them to do."""
    _wait(lambda: idle_percent(pids, 2.0) < IDLE_MAX_PERCENT, "the brokers do not come to rest", may_fail=False)


def _wait(condition: Callable[[], bool], what: str, *, may_fail: bool = True) -> None:
    if not wait_for(condition, READY_S) and may_fail:
        raise RequestFailed(f"{what} within {READY_S:.0f} s")


def _check(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise RequestFailed(f"a broker refused a request: {code!r}")
