"""The catalogue of counted actions of simulated clients and administrators."""

ACTIONS = {
    "2-batches-in-flight": "an idempotent producer sends a second batch to a partition before the first is answered",
    "3-batches-in-flight": "and a third",
    "4-batches-in-flight": "and a fourth",
    "5-batches-in-flight": "and a fifth",
    "batch-sent-again": "an idempotent producer sends a batch again, as librdkafka or as Java's client does",
    "acks-1": "a batch that the leader alone is to keep",
    "acks-0": "a batch that nobody answers",
    "read-from-any-replica": "a fetch from a leader or a follower (KIP-392)",
    "seek": "a consumer goes on at another place",
    "consumer-restart": "a consumer hangs up, and begins elsewhere",
    "list-offsets-by-earliest": "a lookup of the log's start",
    "list-offsets-by-latest": "a lookup of the log's end",
    "list-offsets-by-max-timestamp": "a lookup of the latest record by time",
    "list-offsets-by-time": "a lookup by time",
    "list-offsets-read-committed": "a lookup with one isolation level",
    "list-offsets-read-uncommitted": "a lookup with the other",
    "fetch-session": "a fetch that says and is told what has changed (KIP-227)",
    "fetch-session-lost": "a fetch in a session that the broker does not know any more",
    "offset-for-leader-epoch": "a consumer asks a new leader whether it has what was read (KIP-320)",
    "offset-out-of-range": "a consumer finds that what comes next was deleted, and goes on at the log's start",
    "topic-made": "a topic is created, with a short retention and small segments",
    "topic-made-again": "a topic is created under the name of one that was deleted",
    "topic-deleted": "a topic is deleted while clients use it",
    "partitions-added": "a topic gets another partition",
    "lossy-topic-made": "a topic is created of which committed records may be lost: it is excepted from their rules",
    "replication-factor-1": "such a topic with a single replica",
    "replication-factor-2": "with two",
    "replication-factor-3": "with three",
    "flush-policy-os": "such a topic is not flushed before it acknowledges",
    "flush-policy-changed": "its flush policy changes at run time",
    "log-start-moved": "a fetch is told that the log's start has moved, by retention or DeleteRecords",
    "delete-records": "the records below an offset are deleted, in the midst of a batch too",
    "replicas-moved": "a partition's replicas are reassigned",
    "preferred-election": "the preferred replica is elected by name",
    "unclean-election": "a replica that may lack committed records is elected by name",
    "topic-config-changed": "a topic's segment size changes at run time",
    "broker-config-changed": "a broker's setting changes at run time, or that of all",
    "min-isr-changed": "min.insync.replicas of the topic that is accounted for changes between 1 and 3",
    "broker-unregistered": "a broker's replicas are moved, and it is stopped, forgotten, and begins again",
}


def counted(actions: dict[str, int]) -> dict[str, int]:
    """Return the counts of all actions, including those with count 0."""
    return {name: actions.get(name, 0) for name in ACTIONS}
