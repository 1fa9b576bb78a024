"""Mutants of share groups: locks, acknowledgements, delivery counts, what is stored, sessions and dead letters."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

TWICE = "Two members process one record at a time."
AGAIN = "A record is delivered again after it was acknowledged."
LOST = "A share group passes a record that nobody has processed."
STUCK = "A record is delivered to no one any more, and the share group does not go on."
ENDLESS = "A record that no member can process is delivered without end."
DEAD = "A rejected record is not among the dead letters."

MUTANTS = (
    Mutant(
        "locked-records-are-acquired",
        "cluster/share/share_partition.py",
        "            if known.state is RecordState.AVAILABLE and known.target is None:\n"
        "                first = max(known.start, start)\n",
        "            if known.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and known.target is None:\n"
        "                first = max(known.start, start)\n",
        "A record that is locked is acquired by no other member.",
        TWICE,
        Scenario.SHARES,
    ),
    Mutant(
        "records-that-are-being-written-are-acquired",
        "cluster/share/share_partition.py",
        "            if known.state is RecordState.AVAILABLE and known.target is None:\n"
        "                first = max(known.start, start)\n",
        "            if known.state is RecordState.AVAILABLE or known.target is not None:\n"
        "                first = max(known.start, start)\n",
        "Records whose acknowledgement is being stored stay locked.",
        AGAIN,
        Scenario.SHARES,
    ),
    Mutant(
        "anyone-acknowledges",
        "cluster/share/share_partition.py",
        "is not None or run.member != member:\n",
        "is not None:\n",
        "Only the member that has acquired a record acknowledges it.",
        TWICE,
        Scenario.SHARES,
    ),
    Mutant(
        "what-is-not-locked-is-acknowledged",
        "cluster/share/share_partition.py",
        "            if run.state is not RecordState.ACQUIRED or run.target is not None or run.member != member:\n",
        "            if run.target is not None:\n",
        "A record whose lock has ended is acknowledged by no one.",
        TWICE,
        Scenario.SHARES,
    ),
    Mutant(
        "deliveries-are-not-counted",
        "cluster/share/share_partition.py",
        "min(run.delivery_count + 1, COUNT_MAX)\n",
        "min(run.delivery_count, COUNT_MAX)\n",
        "Each delivery of a record is counted.",
        ENDLESS,
        Scenario.SHARES,
    ),
    Mutant(
        "deliveries-have-no-limit",
        "cluster/share/share_partition.py",
        "        if state is RecordState.AVAILABLE and run.delivery_count >= self.rules.delivery_count_limit:\n"
        "            state = RecordState.ARCHIVING\n",
        "",
        "A record is delivered up to the limit of the group.",
        ENDLESS,
        Scenario.SHARES,
    ),
    Mutant(
        "locks-do-not-end",
        "cluster/share/share_partition.py",
        "for run in self._locked() if run.deadline <= now])\n",
        "for run in self._locked() if run.deadline < 0])\n",
        "A record is available again once its lock has ended.",
        STUCK,
        Scenario.SHARES,
    ),
    Mutant(
        "renewals-end-no-later",
        "cluster/share/share_partition.py",
        "                        run.deadline = max(run.deadline, now + self.rules.lock_s)\n",
        "                        pass\n",
        "A renewed lock ends later (KIP-1222).",
        TWICE,
        Scenario.SHARES,
    ),
    Mutant(
        "the-start-offset-passes-what-is-open",
        "cluster/share/share_partition.py",
        "(run.start for run in self._runs if run.final_state not in FINAL), self.end_offset)\n",
        "(run.start for run in self._runs if run.state is RecordState.ACQUIRED), self.end_offset)\n",
        "The start offset moves over records that are done.",
        LOST,
        Scenario.SHARES,
    ),
    Mutant(
        "ended-sessions-keep-their-locks",
        "cluster/share/share_partition.py",
        "[run for run in self._locked() if run.member == member])\n",
        "[])\n",
        "The end of a session releases what its member has acquired.",
        STUCK,
        Scenario.SHARES,
    ),
    Mutant(
        "rejected-records-come-again",
        "cluster/share/share_partition.py",
        "    AcknowledgementType.REJECT: RecordState.ARCHIVING,\n",
        "    AcknowledgementType.REJECT: RecordState.AVAILABLE,\n",
        "A rejected record is not delivered again.",
        AGAIN,
        Scenario.SHARES,
    ),
    Mutant(
        "dead-letters-are-not-awaited",
        "cluster/share/share_partition.py",
        "        is_plain = state is RecordState.ARCHIVING and not self.rules.has_dead_letters\n",
        "        is_plain = state is RecordState.ARCHIVING\n",
        "A rejected record is done once the dead-letter topic has it (KIP-1191).",
        DEAD,
        Scenario.SHARES,
    ),
    Mutant(
        "former-leaders-store",
        "cluster/share/state.py",
        "        if leader_epoch < self.leader_epoch:\n",
        "        if False:\n",
        "The share coordinator refuses the writes of former leaders.",
        LOST,
        Scenario.SHARES,
    ),
    Mutant(
        "late-writes-take-back",
        "cluster/share/state.py",
        "    return batch.delivery_count, batch.state\n",
        "    return -batch.delivery_count, -batch.state\n",
        "A write that arrives late takes nothing back.",
        AGAIN,
        Scenario.SHARES,
    ),
    Mutant(
        "updates-are-not-restored",
        "cluster/share/state.py",
        "        if update.snapshot_epoch != self.snapshot_epoch:\n            return self\n",
        "        if update.snapshot_epoch == self.snapshot_epoch:\n            return self\n",
        "A new share coordinator knows what was stored after the last snapshot.",
        AGAIN,
        Scenario.SHARES,
    ),
    Mutant(
        "the-stored-start-offset-goes-back",
        "cluster/share/state.py",
        "        start = max(start_offset, self.start_offset)\n",
        "        start = start_offset\n",
        "The stored start offset of a share group goes up only.",
        AGAIN,
        Scenario.SHARES,
    ),
)
