"""Mutants of the idempotent producer state of a log (rule 9)."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

TWICE = "A batch that was sent again is in the log twice."
GONE = "A batch is acknowledged as a duplicate of a batch that is gone."

MUTANTS = (
    Mutant(
        "repeats-are-appended",
        "storage/producers.py",
        "                return batch\n",
        "                return None\n",
        "The log does not append a duplicate batch.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "only-the-last-batch-is-remembered",
        "storage/producers.py",
        "BATCHES_REMEMBERED = 10\n",
        "BATCHES_REMEMBERED = 1\n",
        "The log recognizes a duplicate of any of a producer's last five batches.",
        "A duplicate of an earlier batch is refused, or a truncation drops the producer's state.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "gaps-are-let-through",
        "storage/producers.py",
        '        raise OutOfOrderSequence(\n            f"producer {header.producer_id} sent sequence',
        '        return None\n        OutOfOrderSequence(\n            f"producer {header.producer_id} sent sequence',
        "The log refuses a batch with a gap in its sequence numbers.",
        "The log has a batch without the batches before it.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "replaced-producers-go-on",
        "storage/producers.py",
        "        if header.producer_epoch < known.epoch:\n",
        "        if False:\n",
        "The log fences a producer with an earlier producer epoch.",
        "The log has a batch of an earlier producer epoch.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "truncated-batches-are-repeats",
        "storage/log.py",
        "        self.producers.truncate_end(end, again)\n        self.recovery_point, self.clean_end = min(",
        "        self.recovery_point, self.clean_end = min(",
        "A truncation removes the truncated batches from the producer state.",
        GONE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "unflushed-batches-are-checkpointed",
        "storage/state.py",
        "    producers, sealed, active = log.producers.snapshot(end), ",
        "    producers, sealed, active = log.producers.snapshot(log.log_end), ",
        "A checkpoint of the producer state contains only flushed batches.",
        GONE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-are-not-recovered",
        "storage/log_loader.py",
        "        elif header.producer_id >= 0:\n            producers.appended",
        "        elif False:\n            producers.appended",
        "A restart recovers the last sequences of each producer from the log.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-are-not-replicated",
        "storage/log.py",
        "        elif header.producer_id >= 0:\n            self.producers.appended(header, base, end, now_ms)\n",
        "        elif header.producer_id >= 0 and header.leader_epoch < 0:\n"
        "            self.producers.appended(header, base, end, now_ms)\n",
        "A follower builds its producer state from replicated batches.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-die-with-their-last-checkpoint",
        "storage/state.py",
        "Producers.decode(rest, has_transactions=has_transactions)",
        "Producers()",
        "A restart loads the producer state from the checkpoint.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producer-ids-are-given-out-twice",
        "cluster/metadata/image_builder.py",
        "        if command.expected_next != delta.rest.next_producer_id:\n",
        "        if False:\n",
        "The controller allocates a block of producer ids to one broker, also when the request is retried.",
        "Two proposals for the same block are both accepted.",
        Scenario.QUORUM,
    ),
)
