"""Mutants of the group coordinator: generations, and offset commits and their loading (rule 10)."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

BACK = "The committed offset of a group goes back."
AHEAD = "A consumer skips records that its group has not processed."
TWICE = "A consumer processes records again that a transaction has processed."
OUTSIDER = "A client that is not a member of the group commits an offset."

MUTANTS = (
    Mutant(
        "stale-generations-commit",
        "cluster/groups/group.py",
        "        if code is ErrorCode.none and generation != self.generation:\n",
        "        if False:\n",
        "The group coordinator refuses an offset commit of an earlier generation.",
        OUTSIDER,
        Scenario.GROUPS,
    ),
    Mutant(
        "strangers-commit",
        "cluster/groups/group.py",
        "        code = self._check_generation(member_id, instance_id, generation)\n"
        "        if code is not ErrorCode.none:\n            return code\n"
        "        if self.state is State.COMPLETING_REBALANCE:\n"
        "            return ErrorCode.rebalance_in_progress\n"
        "        self.members.restart_session(self.members.by_id[member_id], now_ms)\n",
        "        if generation != self.generation:\n            return ErrorCode.illegal_generation\n"
        "        if self.state is State.COMPLETING_REBALANCE:\n"
        "            return ErrorCode.rebalance_in_progress\n",
        "The group coordinator accepts offset commits from members only.",
        OUTSIDER,
        Scenario.GROUPS,
    ),
    Mutant(
        "former-static-members-go-on",
        "cluster/groups/group.py",
        "            if known_id is not None and known_id != member_id:\n"
        "                return ErrorCode.fenced_instance_id\n",
        "            if known_id is not None and known_id != member_id:\n                return ErrorCode.none\n",
        "The group coordinator fences a static member that was replaced (KIP-345).",
        OUTSIDER,
        Scenario.GROUPS,
    ),
    Mutant(
        "deposed-coordinators-write",
        "cluster/coordination/topic.py",
        "led(self.name, leadership.partition, leadership.leader_epoch).leader\n",
        "led(self.name, leadership.partition).leader\n",
        "A group coordinator writes only in the leader epoch in which it loaded the group.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "former-coordinators-remember",
        "cluster/coordination/shard_store.py",
        "        if shard is not None and shard.leadership != leadership:\n",
        "        if shard is not None and leadership is None:\n",
        "A broker that becomes coordinator again reloads its groups, because another coordinator wrote meanwhile.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "groups-are-served-before-they-are-committed",
        "cluster/coordination/shard_store.py",
        "            await self._topic.committed(shard.leadership, end)\n            async with self._loads:\n",
        "            async with self._loads:\n",
        "A new coordinator serves offsets after the records that it loaded are committed.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "commits-are-told-before-they-are-committed",
        "cluster/coordination/topic.py",
        "            await self._led(leadership).append_committed(batch, self._wall_clock())\n",
        "            self._led(leadership).partition.append(batch, self._wall_clock())\n",
        "The coordinator acknowledges an offset commit once all in-sync replicas have it.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "commits-are-seen-before-they-are-committed",
        "cluster/groups/state_store.py",
        "        sequence = shard.offsets.begin(changes)\n",
        "        sequence = shard.offsets.begin(changes)\n        shard.offsets.settle(sequence, changes)\n",
        "OffsetFetch returns an offset only after its record is committed.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "assignments-are-told-before-they-are-written",
        "cluster/groups/group.py",
        "            self.effects.append(Store(Purpose.ASSIGNED, self._saved(shares)))\n",
        "            self._assigned(self._saved(shares), ErrorCode.none, now_ms)\n",
        "The coordinator stores a generation on disk before its members receive their assignments.",
        "The next coordinator takes members of an earlier generation for the current members.",
        Scenario.GROUPS,
    ),
    Mutant(
        "loading-stops-early",
        "cluster/coordination/shard_store.py",
        "        offset = await turns.run(_replay(replay, data, offset))\n",
        "        end = offset = await turns.run(_replay(replay, data, offset))\n",
        "A coordinator loads all records that its predecessors wrote.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "generations-stand-still",
        "cluster/groups/rebalance.py",
        "        self.generation += 1\n",
        "        self.generation = max(self.generation, 1)\n",
        "Each rebalance starts a new generation.",
        OUTSIDER,
        Scenario.GROUPS,
    ),
    Mutant(
        "pending-offsets-are-seen",
        "cluster/groups/state_store.py",
        "        shard.offsets.write_pending(producer.producer_id, changes)\n",
        "        shard.offsets.settle(shard.offsets.begin(changes), changes)\n",
        "Offsets that a transaction has committed count from its marker on (transaction rule 7).",
        AHEAD,
        Scenario.GROUPS,
    ),
    Mutant(
        "aborted-offsets-are-applied",
        "cluster/coordination/open_transactions.py",
        "            if is_commit and written is not None:\n",
        "            if written is not None:\n",
        "Offsets of an aborted transaction are dropped (transaction rule 7).",
        AHEAD,
        Scenario.GROUPS,
    ),
    Mutant(
        "markers-take-offsets-back",
        "cluster/coordination/open_transactions.py",
        "            if written is not None and written.position < position:\n                values[key] = None\n",
        "            if written is not None and written.position < position:\n                pass\n",
        "A marker does not replace an offset that was committed after the transaction's (transaction rule 7).",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "copies-replace-what-is-newer",
        "cluster/coordination/replay.py",
        "            self.newest.setdefault(key, value)\n",
        "            self.newest[key] = value\n",
        "A compaction's copy never replaces a value (transaction rule 7).",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "markers-during-the-load-are-missed",
        "cluster/groups/shard.py",
        "            self._ended.append((producer_id, is_commit))\n",
        "            pass\n",
        "A marker that is appended while a shard is loaded counts (transaction rule 7).",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "offsets-of-open-transactions-expire",
        "cluster/groups/removal.py",
        "        keys = [key for key in found if (key.topic, key.partition) not in pending]\n",
        "        keys = found\n",
        "An offset does not expire while a transaction changes it.",
        BACK,
        Scenario.GROUPS,
    ),
    Mutant(
        "former-members-commit-in-transactions",
        "cluster/groups/group.py",
        "        if generation < 0 and (names_no_member or self.state is State.EMPTY):\n",
        "        if True:\n",
        "A transactional commit of a former member or generation is refused (KIP-447).",
        OUTSIDER,
        Scenario.GROUPS,
    ),
    Mutant(
        "unstable-offsets-are-returned",
        "cluster/kafka/handlers/offset_fetch.py",
        "        if (place := TopicPartition(name, index)) in pending:\n",
        "        if (place := TopicPartition(name, index)) is None:\n",
        "OffsetFetch with require_stable refuses pending offsets (KIP-447).",
        TWICE,
        Scenario.GROUPS,
    ),
)
