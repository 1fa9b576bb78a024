"""Data in a topic of its own, which a cluster holds before the first fault."""

import time

from confluent_kafka import Producer

from cordwood.chaos.live.brokers import LiveCluster

TOPIC, PARTITIONS = "preloaded", 6
VALUE_BYTES = 50_000
QUEUED_MAX = 1000
ACKED_S = 300.0
CHECKPOINTED_S = 12.0
"""The time after which an idle log has a checkpoint."""


def preload(cluster: LiveCluster, megabytes: int, segment_bytes: int) -> None:
    """Fill the topic, and wait until its sealed segments are below the recovery point. Raises TimeoutError."""
    cluster.create_topic(TOPIC, PARTITIONS, {"segment.bytes": str(segment_bytes)})
    settings = {"batch.size": 900_000, "linger.ms": 20, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number in range(megabytes * 10**6 // VALUE_BYTES):
        while len(producer) > QUEUED_MAX:
            producer.poll(0.05)
        producer.produce(TOPIC, b"%0*d" % (VALUE_BYTES, number), partition=number % PARTITIONS)
    if producer.flush(ACKED_S):
        raise TimeoutError(f"{megabytes} MB were not acknowledged in time")
    cluster.wait_in_sync()
    time.sleep(CHECKPOINTED_S)
