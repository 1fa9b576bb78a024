"""Mutants of the idempotent producer state of a log (rule 9)."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

TWICE = "A batch that was sent again is in the log twice."
GONE = "A batch is acknowledged as a repeat of one that is gone."

MUTANTS = (
    Mutant(
        "repeats-are-appended",
        "storage/producers.py",
        "                return batch\n",
        "                return None\n",
        "A batch that is in the log is not appended again.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "only-the-last-batch-is-remembered",
        "storage/producers.py",
        "BATCHES_REMEMBERED = 10\n",
        "BATCHES_REMEMBERED = 1\n",
        "The last five batches are recognised.",
        "A batch that was sent again before its successors is refused, or a truncation forgets its producer.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "gaps-are-let-through",
        "storage/producers.py",
        '        raise OutOfOrderSequence(\n            f"producer {header.producer_id} sent sequence',
        '        return None\n        OutOfOrderSequence(\n            f"producer {header.producer_id} sent sequence',
        "A gap in the sequence numbers is refused.",
        "A batch is in the log whose predecessors are not.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "replaced-producers-go-on",
        "storage/producers.py",
        "        if header.producer_epoch < known.epoch:\n",
        "        if False:\n",
        "A producer that was replaced is fenced by its epoch.",
        "A batch of an older epoch is in the log.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "truncated-batches-are-repeats",
        "storage/log.py",
        "        self.producers.truncate_end(end)\n        self.recovery_point = min(",
        "        self.recovery_point = min(",
        "What was cut may be sent again.",
        GONE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "unflushed-batches-are-checkpointed",
        "storage/log.py",
        "self.producers.encode(self.flushed_end)",
        "self.producers.encode(self.log_end)",
        "A checkpoint knows of no batch that is not on disk.",
        GONE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-are-not-recovered",
        "storage/log_loader.py",
        "        if header.producer_id >= 0:\n            self._log.producers.appended",
        "        if False:\n            self._log.producers.appended",
        "A restart finds again what every producer sent last.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-are-not-replicated",
        "storage/log.py",
        "        if header.producer_id >= 0:\n            self.producers.appended(header, base, end, now_ms)\n",
        "        if header.producer_id >= 0 and header.leader_epoch < 0:\n"
        "            self.producers.appended(header, base, end, now_ms)\n",
        "A follower learns of producers from their batches.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producers-die-with-their-last-checkpoint",
        "storage/state.py",
        "Producers.decode(rest)",
        "Producers()",
        "A checkpoint keeps what is known of producers.",
        TWICE,
        Scenario.REPLICAS,
    ),
    Mutant(
        "producer-ids-are-given-out-twice",
        "cluster/metadata/image_builder.py",
        "        if command.expected_next != delta.rest.next_producer_id:\n",
        "        if False:\n",
        "A block of producer ids is given to one broker, however often it is asked for.",
        "Two proposals for the same block are both accepted.",
        Scenario.QUORUM,
    ),
)
