"""Mutants of cuts: what they pin, where they end, and when they end."""

from cordwood.chaos.mutants.mutant import Mutant

SHRUNK = "A reader of the cut finds fewer records than on the day before."

MUTANTS = (
    Mutant(
        "retention-ignores-cuts",
        "storage/log.py",
        "else min(high_watermark, self.pinned.start)\n",
        "else high_watermark\n",
        "Retention removes nothing that a cut pins.",
        SHRUNK,
    ),
    Mutant(
        "the-newest-cut-pins-alone",
        "storage/pins.py",
        "        return Pin(min(self.start, start), max(self.end, end))\n",
        "        return Pin(start, end)\n",
        "Several cuts pin all that one of them needs.",
        SHRUNK,
    ),
    Mutant(
        "a-new-replica-is-not-pinned",
        "cluster/broker/assignments.py",
        "        self._pins.pin(held)\n",
        "",
        "A log is pinned when it is opened, before retention looks at it.",
        SHRUNK,
    ),
    Mutant(
        "a-dropped-cut-pins-on",
        "cluster/broker/pins.py",
        "        for place in before.keys() | self._pins.keys():\n",
        "        for place in self._pins.keys():\n",
        "A log is pinned no longer than its cuts exist.",
        "The disk fills up.",
    ),
    Mutant(
        "pinned-records-are-deleted",
        "cluster/kafka/handlers/delete_records.py",
        "    if start > max(leader.log.pinned.start, leader.log.log_start):\n",
        "    if False:\n",
        "DeleteRecords removes nothing that a cut pins.",
        SHRUNK,
    ),
    Mutant(
        "pinned-topics-are-deleted",
        "cluster/metadata/image_builder.py",
        "                cut_changes.check_not_pinned(self._delta, topic)\n",
        "",
        "A topic is not deleted while a cut pins it.",
        SHRUNK,
    ),
    Mutant(
        "a-cut-ends-at-the-high-watermark",
        "cluster/kafka/cut_offsets.py",
        "self._offsets.listed(places, timestamp, READ_COMMITTED, PATIENCE_S)",
        "self._offsets.listed(places, timestamp, 0, PATIENCE_S)",
        "Every record of a cut is decided.",
        "A transaction that ends later changes the rows of the cut.",
    ),
    Mutant(
        "a-cut-begins-before-its-log",
        "cluster/kafka/handlers/create_cut.py",
        "    if all(moved[place] <= starts[place] for place in places):\n",
        "    if True:\n",
        "A cut that is created has all its records.",
        "A reader of the cut asks for records that retention has removed meanwhile.",
    ),
    Mutant(
        "a-late-drop-drops-the-next-cut",
        "cluster/metadata/cut_changes.py",
        "        if known is None or known.created_ms != command.created_ms:\n",
        "        if known is None:\n",
        "A command drops the cut that it was made for.",
        SHRUNK,
    ),
    Mutant(
        "cuts-for-ever-expire",
        "cluster/metadata/expiry.py",
        "if cut.expires_ms != NEVER_EXPIRES and cut.expires_ms <= wall_ms)",
        "if cut.expires_ms <= wall_ms)",
        "A cut without a lifetime stays until it is dropped.",
        SHRUNK,
    ),
    Mutant(
        "one-list-is-enough-to-forget-a-cut",
        "cluster/tiering/cut_objects.py",
        "        await self._store.delete(sorted(listed & self._unknown - names))\n",
        "        await self._store.delete(sorted(listed - names))\n",
        "A controller that is not up to date deletes no object of a cut.",
        "Readers without brokers do not find the cut.",
    ),
)
