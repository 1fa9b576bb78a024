"""Mutants of readers of the archive without brokers: `cordwood.archive.open`, and Spark's tasks."""

from cordwood.chaos.mutants.mutant import Mutant

BATCHES, CATALOG, SPARK, SURVEY = "archive/batches.py", "archive/catalog.py", "spark/archive.py", "spark/survey.py"
TWICE = "A reader returns records twice."
LOST = "A reader leaves out records, and no error says so."
DIRTY = "A reader of committed records returns aborted records."

MUTANTS = (
    Mutant(
        "tables-repeat-overlaps",
        BATCHES,
        "if one.header.end > chunk.start and one.header.base_offset < wanted.end]\n",
        "if one.header.base_offset < wanted.end]\n",
        "A segment counts from its start offset on.",
        TWICE,
    ),
    Mutant(
        "tables-do-not-check-intervals",
        BATCHES,
        "            if crc32c(view[interval.position - begin : interval.end - begin]) != interval.crc:\n",
        "            if False:\n",
        "Archived bytes are compared with the index before they are used.",
        "A damaged leader epoch or offset of an archived batch is not found.",
    ),
    Mutant(
        "tables-read-aborted-rows-of-one-segment",
        BATCHES,
        "            if later > at and state.undecided >= end:\n",
        "            if later > at:\n",
        "The marker of a transaction may be in a later segment than its records.",
        DIRTY,
    ),
    Mutant(
        "tables-read-undecided-transactions",
        CATALOG,
        "    decided = end if oldest is None else min(end, oldest.current_transaction_first_offset)\n",
        "    decided = end\n",
        "A transaction whose marker is not archived is not read.",
        DIRTY,
    ),
    Mutant(
        "tables-take-a-missing-object-for-the-end",
        BATCHES,
        "                self._look_again(wanted, position, missing)\n",
        "                return\n",
        "A reader finds the segments that have replaced a missing one.",
        LOST,
    ),
    Mutant(
        "tables-read-segments-again-from-the-start",
        BATCHES,
        "                    position = end\n",
        "                    position = wanted.start\n",
        "A reader goes on where it was when segments are replaced.",
        TWICE,
    ),
    Mutant(
        "spark-reads-no-brokers-after-a-failure-of-the-archive",
        SPARK,
        "        self._has_failed = True\n        log",
        "        self._has_failed, self.position = True, 1 << 62\n        log",
        "What the archive cannot give comes from brokers.",
        LOST,
    ),
    Mutant(
        "spark-reads-compacted-topics-of-a-cut-from-the-archive",
        SURVEY,
        "            there = [place for place in there if place.topic in fixed]\n",
        "",
        "A cut of a compacted topic is read from the log, which is pinned.",
        "Two reads of a cut differ.",
    ),
)
