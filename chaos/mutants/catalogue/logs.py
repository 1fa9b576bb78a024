"""Mutants of a single log: its offsets, segments, epochs and producers, its retention, and what may enter it."""

from cordwood.chaos.mutants.mutant import Mutant, Story

WRONG_PLACE = "A reader is given records from another offset."
LOST_OFFSETS = "Offsets are given out twice, or records are gone after a restart."

MUTANTS = (
    Mutant(
        "append-time-is-not-written",
        "storage/log.py",
        "            batch = with_append_time(batch, now_ms)\n",
        "",
        "With LogAppendTime a batch has the broker's time.",
        "A consumer reads the producer's time.",
        Story.LOGS,
    ),
    Mutant(
        "stamped-batches-may-go-back",
        "storage/log.py",
        "            if header.base_offset < due:\n",
        "            if False:\n",
        "A follower's batches follow on.",
        "An offset is in the log twice.",
        Story.LOGS,
    ),
    Mutant(
        "reads-below-the-log-start",
        "storage/log.py",
        "        if not self.log_start <= offset <= self.log_end:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        end = min(end, self.log_end)\n",
        "        if not offset <= self.log_end:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        end = min(end, self.log_end)\n",
        "Nothing below the log's start is read.",
        "Deleted records are read.",
        Story.LOGS,
    ),
    Mutant(
        "reads-beyond-the-log-end",
        "storage/log.py",
        "        if not self.log_start <= offset <= self.log_end:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        end = min(end, self.log_end)\n",
        "        if not self.log_start <= offset:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        end = min(end, self.log_end)\n",
        "Whoever reads behind the log's end is told so.",
        "A consumer waits for ever behind the end of a log that was cut.",
        Story.LOGS,
    ),
    Mutant(
        "missing-records-are-an-empty-answer",
        "storage/log.py",
        "        if offset >= segment.end_offset:\n"
        '            raise DamagedLog(segment.path, segment.size, f"the records from',
        '        if False:\n            raise DamagedLog(segment.path, segment.size, f"the records from',
        "Records that are missing are damage.",
        WRONG_PLACE,
        Story.LOGS,
    ),
    Mutant(
        "slices-reach-into-damage",
        "storage/log.py",
        "        sound = segment.damaged.sound_end(segment.path, start, stop)\n",
        "        sound = stop\n",
        "A slice ends where damage begins.",
        "What is sound before damage is not served.",
        Story.LOGS,
    ),
    Mutant(
        "slices-ignore-the-end",
        "storage/log.py",
        "        stop = segment.size if end >= segment.end_offset else self._locate(segment, end, wait)\n",
        "        stop = segment.size\n",
        "Only what is below the end is read.",
        "A consumer is given what is not committed.",
        Story.LOGS,
    ),
    Mutant(
        "slices-ignore-the-size",
        "storage/log.py",
        "        if stop - start > max_bytes or sound < stop:\n",
        "        if sound < stop:\n",
        "A slice has at most the bytes that were asked for, or a single batch.",
        "An answer is larger than its client allows.",
        Story.LOGS,
    ),
    Mutant(
        "a-cut-leaves-the-flushed-end",
        "storage/log.py",
        "        self.flushed_end = min(self.flushed_end, end)\n",
        "",
        "What was cut is not flushed any more.",
        "A replica says that it has on disk what it has only in memory.",
        Story.LOGS,
    ),
    Mutant(
        "the-start-may-go-back",
        "storage/log.py",
        "        if not self.log_start <= offset <= self.log_end:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        self.log_start = offset\n",
        "        if not offset <= self.log_end:\n"
        '            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")\n'
        "        self.log_start = offset\n",
        "The log's start goes one way.",
        "Deleted records come back.",
        Story.LOGS,
    ),
    Mutant(
        "retention-leaves-the-start",
        "storage/log.py",
        "            self.raise_log_start(self.segments[0].base_offset)\n        return dropped\n",
        "            pass\n        return dropped\n",
        "A log begins where its first segment does.",
        "A reader asks for what retention removed, and finds damage.",
        Story.LOGS,
    ),
    Mutant(
        "retention-takes-what-is-not-committed",
        "storage/retention.py",
        "        if segment.end_offset > high_watermark:\n            break\n",
        "",
        "Retention removes only what is committed.",
        "A record is gone before its producer is told of it.",
        Story.LOGS,
    ),
    Mutant(
        "retention-by-size-takes-one-too-many",
        "storage/retention.py",
        "config.deletable and segment.size <= excess and",
        "config.deletable and excess > 0 and",
        "What remains has retention.bytes.",
        "Fewer records are kept than were promised.",
        Story.LOGS,
    ),
    Mutant(
        "retention-by-size-takes-the-active-segment",
        "storage/retention.py",
        "segment.size <= excess and not is_active\n",
        "segment.size <= excess\n",
        "The active segment goes for its age alone.",
        "Records that have only just come are gone.",
        Story.LOGS,
    ),
    Mutant(
        "compacted-topics-shrink",
        "storage/retention.py",
        "        too_large = config.deletable and segment",
        "        too_large = segment",
        "A topic that is only compacted keeps its records.",
        "Committed offsets are gone behind retention.bytes.",
        Story.LOGS,
    ),
    Mutant(
        "records-without-a-time-age",
        "storage/retention.py",
        "    return config.retention_ms >= 0 and is_timed and now_ms",
        "    return config.retention_ms >= 0 and now_ms",
        "Records without a time have no age.",
        "They are gone at once.",
        Story.LOGS,
    ),
    Mutant(
        "retention-for-ever-ends",
        "storage/retention.py",
        "    return config.retention_ms >= 0 and is_timed and now_ms",
        "    return is_timed and now_ms",
        "retention.ms=-1 keeps records for ever.",
        "They are gone at once.",
        Story.LOGS,
    ),
    Mutant(
        "what-was-deleted-stays-on-disk",
        "storage/retention.py",
        "        below_start = segment.end_offset <= log_start and not is_active\n",
        "        below_start = False\n",
        "Segments below the log's start go.",
        "DeleteRecords frees nothing.",
        Story.LOGS,
    ),
    Mutant(
        "stale-epochs-stay",
        "storage/epochs.py",
        "        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].offset >= offset):\n"
        "            self._entries.pop()\n",
        "",
        "Epochs and their offsets rise (KIP-101).",
        "OffsetForLeaderEpoch tells of an epoch that was overwritten.",
        Story.LOGS,
    ),
    Mutant(
        "offset-for-leader-epoch-off-by-one",
        "storage/epochs.py",
        "        end = self._entries[place].offset if place < len(self._entries) else Offset(log_end)\n",
        "        end = Offset(self._entries[place].offset + 1) if place < len(self._entries) else Offset(log_end)\n",
        "An epoch ends where the next one begins.",
        "A follower keeps a record that its leader has not.",
        Story.TURNS,
    ),
)
