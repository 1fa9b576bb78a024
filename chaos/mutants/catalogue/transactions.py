"""Mutants of the transaction coordinator: decisions, fencing, markers, and their failover."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

TORN = "Records of one transaction are committed, and others of it are aborted or stay open."
BOTH = "A transaction is committed in one partition and aborted in another."
ZOMBIE = "A producer that was fenced goes on writing."
HANGING = "A transaction stays open, and readers of committed records stop at it."

TRANSACTION = "cluster/transactions/transaction.py"
COORDINATOR = "cluster/transactions/coordinator.py"
SHARD = "cluster/transactions/shard.py"
MARKERS = "cluster/transactions/markers.py"
FORMATS = "cluster/transactions/formats.py"

MUTANTS = (
    Mutant(
        "decisions-are-not-awaited",
        COORDINATOR,
        "            await self._store.append(shard, [record(*change) for change in changes.items()])\n",
        "            self._store.submit(shard, [record(*change) for change in changes.items()])\n",
        "EndTxn is answered after the decision is committed (transaction rule 1).",
        BOTH,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "markers-before-their-decision",
        COORDINATOR,
        "            shard.begin(transactional_id, transaction)\n        try:\n            await",
        "            shard.begin(transactional_id, transaction)\n"
        "            if transaction.state in DECIDED:\n"
        "                self._write_markers(shard, transactional_id, transaction)\n"
        "        try:\n            await",
        "A marker is written after its decision is committed (transaction rule 1).",
        BOTH,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "completion-without-all-markers",
        MARKERS,
        "            if not decision.missing and decision in self._decisions:\n",
        "            if decision in self._decisions:\n",
        "A transaction is complete after all its markers are committed (transaction rule 4).",
        TORN,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "refused-markers-are-forgotten",
        MARKERS,
        "    return code in (ErrorCode.none, ErrorCode.invalid_producer_epoch)\n",
        "    return code is not ErrorCode.not_leader_or_follower\n",
        "A marker that was refused is written again (transaction rule 4).",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "unanswered-markers-are-forgotten",
        MARKERS,
        "            row_codes = codes[number] if codes is not None else {}\n",
        "            row_codes = codes[number] if codes is not None else dict.fromkeys(partitions, ErrorCode.none)\n",
        "A marker without an acknowledgement is written again (transaction rule 4).",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "markers-stay-with-the-former-leader",
        MARKERS,
        "self._route(decision, [partition for partition in moved if partition in decision.missing])",
        "pass",
        "A marker in flight follows its partition to the new leader.",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "deleted-topics-hold-transactions",
        MARKERS,
        "                decision.missing.discard(partition)\n",
        "                parked.append(partition)\n",
        "The partitions of a deleted topic need no marker.",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "topics-are-known-by-name",
        FORMATS,
        "        topic_id = UUID(bytes=topic_ids[16 * number : 16 * number + 16]) if topic_ids else None\n",
        "        topic_id = None\n",
        "A topic that is created again does not get the markers of the deleted one.",
        TORN,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "decisions-are-not-resumed",
        COORDINATOR,
        "            if transaction.state in DECIDED:\n"
        "                self._write_markers(shard, transactional_id, transaction)\n\n",
        "            pass\n\n",
        "The next coordinator writes the markers of decisions that it finds (transaction rule 4).",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "deposed-coordinators-keep-their-markers",
        COORDINATOR,
        "        self._markers.cancel(shard)\n",
        "",
        "A coordinator that is deposed writes no more markers.",
        TORN,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "compaction-forgets-decisions",
        SHARD,
        "self._pending.get(key) or self.transactions.get(key)",
        "self.transactions.get(key)",
        "A compaction keeps the newest record of a transactional id, committed or not (transaction rule 4).",
        BOTH,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "ends-are-changed",
        TRANSACTION,
        "        if self.state is (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):\n",
        "        if self.state in COMPLETE:\n",
        "A transaction that was aborted is not answered as committed (transaction rule 4).",
        BOTH,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "concurrent-ends",
        TRANSACTION,
        "        if is_pending:\n            raise Refused(ErrorCode.concurrent_transactions)\n"
        "        self._check_connection",
        "        self._check_connection",
        "One transition of a transactional id is written at a time (transaction rule 4).",
        BOTH,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "transactions-overlap",
        TRANSACTION,
        "        if is_pending or self.state in DECIDED:\n",
        "        if is_pending:\n",
        "The next transaction begins after the markers of the last one.",
        TORN,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "fenced-producers-add",
        TRANSACTION,
        "        if producer.epoch != current.epoch:\n",
        "        if producer.epoch > current.epoch:\n",
        "A producer with an earlier epoch is refused (transaction rule 5).",
        ZOMBIE,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "fencing-epochs-are-handed-out",
        TRANSACTION,
        "epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=NO_PRODUCER_EPOCH, is_v2=True",
        "epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=self.epoch, is_v2=True",
        "The epoch that fences a producer is not an answer to its late request (transaction rule 5).",
        ZOMBIE,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "timeouts-do-not-fence",
        TRANSACTION,
        "epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=NO_PRODUCER_EPOCH, is_v2=True",
        "is_v2=True",
        "A transaction that exceeds its timeout is aborted with a new epoch (transaction rule 5).",
        ZOMBIE,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "new-producers-fence-no-one",
        TRANSACTION,
        "            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch\n            epoch += 1\n",
        "            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch\n"
        "            epoch += expected is not None or epoch < 0\n",
        "Each new producer of a transactional id has an epoch of its own (transaction rule 5).",
        ZOMBIE,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "repeated-requests-raise-the-epoch",
        TRANSACTION,
        "        if not is_new and expected is not None and expected == self._last:\n",
        "        if False:\n",
        "A repeated InitProducerId has the same answer (KIP-360).",
        "A producer is fenced by its own repeated request.",
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "the-last-epoch-is-forgotten",
        FORMATS,
        "        last_epoch=_tagged(tags, _LAST_EPOCH, SHORT, NO_PRODUCER_EPOCH),\n",
        "        last_epoch=NO_PRODUCER_EPOCH,\n",
        "A repeated request is recognized by the next coordinator (KIP-360).",
        "A producer is fenced by its own repeated request.",
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "epochs-are-used-up",
        TRANSACTION,
        "        return self.epoch >= EPOCH_MAX - 1\n",
        "        return self.epoch >= EPOCH_MAX\n",
        "One epoch is left to fence with.",
        ZOMBIE,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "delayed-requests-tear",
        TRANSACTION,
        "        if not is_v2 and 0 < connection < self.connection:\n",
        "        if False:\n",
        "A delayed request of version 1 does not land in the next transaction (transaction rule 6).",
        TORN,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "open-transactions-expire",
        TRANSACTION,
        "        return self.state in EXPIRING and now_ms - self.update_ms >= expiration_ms\n",
        "        return now_ms - self.update_ms >= expiration_ms\n",
        "A transactional id with a transaction does not expire.",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
    Mutant(
        "open-transactions-never-time-out",
        TRANSACTION,
        "        return self.state is _S.ONGOING and now_ms - self.start_ms > self.timeout_ms\n",
        "        return False\n",
        "A transaction is aborted after its timeout.",
        HANGING,
        Scenario.TRANSACTIONS,
    ),
)
