"""Mutants of log directories: moves of replicas between them, and what a missing one costs."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

LOST = "After a crash, acknowledged records are missing from the copy that counts."
COUNTED = "The cluster counts on a replica whose log directory is gone."

MUTANTS = (
    Mutant(
        "moving-replicas-are-flushed",
        "replication/flusher.py",
        "            if replica.is_offline or replica.is_deleted or replica.flusher is not self:\n",
        "            if replica.is_offline or replica.is_deleted:\n",
        "Nothing is flushed while a copy takes the place of a log (disk rule 9).",
        LOST,
        Scenario.BROKERS,
    ),
    Mutant(
        "copies-count-before-their-end",
        "storage/log_copy.py",
        "        mark.pwrite([_encoded(log.log_end)], 0)\n",
        "        mark.pwrite([_encoded(COMMITTED)], 0)\n",
        "A copy counts only if it has all that the log had (disk rule 9).",
        LOST,
        Scenario.BROKERS,
    ),
    Mutant(
        "copies-are-committed-unsynced",
        "storage/log_copy.py",
        "    if file is not None:\n        file.sync()\n    for changed in",
        "    for changed in",
        "A copy is on disk before its mark says that it counts (disk rule 9).",
        LOST,
        Scenario.BROKERS,
    ),
    Mutant(
        "copies-are-committed-under-an-unsynced-name",
        "storage/log_copy.py",
        "        if disk.exists(changed):\n            sync_directory(disk, changed)\n    checkpoint",
        "        pass\n    checkpoint",
        "The name of a copy is on disk before its mark says that it counts (disk rules 1 and 9).",
        LOST,
        Scenario.BROKERS,
    ),
    Mutant(
        "former-copies-come-back",
        "replication/log_maintenance.py",
        "                await directory.run_blocking(directory.sync_topic, partition.topic_id)\n",
        "",
        "The mark of a copy is removed after the removal of the former one is on disk (disk rule 9).",
        "A power cut brings back the former copy, which lacks what came later.",
        Scenario.BROKERS,
    ),
    Mutant(
        "moving-replicas-are-counted-on",
        "replication/replica_moves.py",
        "        await self._unrecord(partition)\n",
        "",
        "While a replica moves, the loss of either directory is its loss (rule 8).",
        COUNTED,
        Scenario.BROKERS,
    ),
    Mutant(
        "unrecorded-replicas-survive",
        "cluster/metadata/directory_changes.py",
        "        if broker_id in partition.replicas and known.get((topic.id, index)) not in now:\n",
        "        if broker_id in partition.replicas and known.get((topic.id, index)) not in (None, *now):\n",
        "A replica without a recorded directory is lost with any (rule 8).",
        COUNTED,
        Scenario.BROKERS,
    ),
    Mutant(
        "returned-replicas-have-their-former-directory",
        "cluster/metadata/image_builder.py",
        "                delta.rest = directory_changes.without_removed(delta.rest, before, after, indexes)\n",
        "",
        "A replica that left and returns may be in another directory (rule 8).",
        COUNTED,
        Scenario.BROKERS,
    ),
    Mutant(
        "empty-replicas-forget-their-directory",
        "replication/replicas.py",
        "            if home is not None and self._homes.get(place) is not home:\n",
        "            if home is not None and self._homes.get(place, home) is not home:\n",
        "A replica without files stays in the directory that the metadata has (rule 8).",
        COUNTED,
        Scenario.BROKERS,
    ),
    Mutant(
        "marks-of-removed-logs-stay",
        "storage/flushed_offsets.py",
        ("        if slot is not None:\n            self.file.pwrite([_FREE], slot * SLOT_BYTES)\n"),
        "        if slot is not None:\n",
        "A removed log leaves no flushed offset.",
        "A replica that comes back counts as one that lost its records.",
        Scenario.LOGS,
    ),
)
