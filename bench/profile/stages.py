"""Stages of a request, and other work of a broker, by the stacks of a CPU profile."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Stack = tuple[tuple[str, ...], int]
"""Frames from the outermost to the innermost, and how many samples had exactly these."""

_LINE_NUMBER = re.compile(r":\d+\)$")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stack belongs to the first stage whose pattern is found in it."""

    name: str
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, name: str, *beginnings: str) -> "Stage":
        """Return a stage by the beginnings of its frames: `Class.method`, `Class.`, or `function (file`."""
        return cls(name, re.compile(r"(?:^|;)(?:" + "|".join(map(re.escape, beginnings)) + ")"))


WAITING_THREADS = Stage.of("threads that wait", "_queue_SimpleQueue_get", "PyThread_acquire_lock_timed")
"""Not counted: a pool's thread without work costs nothing. Its inner frames distinguish it from one at work."""
IDLE = "event loop idle"
OTHER = "other"

_RULES = (
    Stage.of(IDLE, "epoll_pwait", "epoll_wait", "kevent"),
    Stage.of("garbage collector", "gc_collect"),
    Stage.of("threads (checkpoints, cold reads)", "_worker (concurrent/futures/thread.py"),
    Stage("metadata", re.compile(r"cordwood/cluster/metadata/|(?:^|;)(?:ControllerRunner|Lifecycle)\.")),
    Stage.of("metrics", "ApiMeasures.", "Histogram.", "FlushMeasures."),
    Stage.of("crc", "crc32c", "_crc32c", "headers (cordwood/storage/batch.py"),
    Stage.of("follower append", "FollowerRole.replicate"),
    Stage.of("replicate (push)", "FollowerConnection.wake", "FollowerConnection.schedule_data",
             "FollowerConnection.schedule_watermark", "FollowerConnection._send_watermarks", "ReplicaStream."),
    Stage.of("replicate (reports)", "LeaderConnection.wake", "FollowerConnections.handle", "FollowerRole.flushed"),
    Stage.of("follower, the rest", "LeaderConnection.", "decode_push"),
    Stage.of("flush (io_submit)", "AioSyncer.sync", "AioSyncer._call", "Flusher._flush", "Flusher.touch", "sync_all",
             "RealFile.sync", "Partition.flushed", "Log.flushed"),
    Stage.of("append (pwrite)", "RealFile.pwrite"),
    Stage.of("append (check, index, bookkeeping)", "Partition.append"),
    Stage.of("decode", "read_head", "read_produce", "read_lone", "read_fetch", "reading", "Api.decoding"),
    Stage.of("respond (encode)", "encode (produce_response.py", "encode (cordwood/cluster/kafka/",
             "DelayedFetch._answer", "encode_"),
    Stage.of("send", "Connection.wake", "AnswerQueue.", "Connection._read_piece"),
    Stage.of("commit (watermark, waiters)", "Partition.announce", "LeaderRole.follower_flushed", "EndOfTickScheduler."),
    Stage.of("handler, the rest", "ProduceHandler.", "FetchHandler.", "DelayedFetch.", "Dispatcher."),
    Stage.of("socket receive", "Connection.", "ReceiveBuffer.", "uv__read", "uv__stream_io"),
    Stage.of("flush (completion)", "AioSyncer.", "Flusher."),
    Stage.of("housekeeping", "LogMaintenance.", "Checkpoints.", "FileRemoval.", "Scrubber.", "Repairs."),
    Stage.of("event loop", "Loop__run", "uv_run", "run_forever", "Runner.run"),
)  # fmt: skip
"""Stages that run under others come first: a send, for example, runs under a completed flush or a receive."""

# In the order in which a request meets them.
ORDER = (
    IDLE, "event loop", "socket receive", "decode", "handler, the rest", "append (check, index, bookkeeping)", "crc",
    "append (pwrite)", "flush (io_submit)", "flush (completion)", "replicate (push)", "replicate (reports)",
    "follower append", "follower, the rest", "commit (watermark, waiters)", "respond (encode)", "send", "metrics",
    "metadata", "housekeeping", "garbage collector", "threads (checkpoints, cold reads)", OTHER,
)  # fmt: skip


def stacks_of(folded: Iterable[str]) -> Iterator[Stack]:
    """Parse the lines of py-spy's raw format: frames separated by semicolons, a blank, a count."""
    for line in folded:
        frames, _, count = line.rstrip("\n").rpartition(" ")
        if frames:
            yield tuple(frames.split(";")), int(count)


def stage_of(frames: tuple[str, ...]) -> str | None:
    """Return the stage of one stack; None for a thread that only waits for work."""
    text = ";".join(frames)
    if "_worker (concurrent/futures/thread.py" in text and _is_waiting(frames, text):
        return None
    # Without native frames, nothing below the loop is visible: the loop waits, or reads from a socket.
    if frames[-1].startswith("Runner.run ("):
        return IDLE
    return next((rule.name for rule in _RULES if rule.pattern.search(text)), OTHER)


def shares(stacks: Iterable[Stack]) -> dict[str, float]:
    """Return each stage's share of the samples, 0 to 1, in the order of ORDER, without stages that have no samples.

    A sample is a moment, busy or not: with the event loop in one thread, the shares are shares of elapsed time. A
    broker that waits for a processor is sampled where it was preempted, most often in a write that woke another
    process.
    """
    counts: Counter[str] = Counter()
    for frames, count in stacks:
        stage = stage_of(frames)
        if stage is not None:
            counts[stage] += count
    total = counts.total()
    return {stage: counts[stage] / total for stage in ORDER if counts[stage]}


def function_of(frame: str) -> str:
    """Return the frame without its line number, so that samples in one function count as one."""
    return _LINE_NUMBER.sub(")", frame)


def _is_waiting(frames: tuple[str, ...], text: str) -> bool:
    # Without native frames, a waiting thread ends in the function that takes work from the queue.
    return bool(WAITING_THREADS.pattern.search(text)) or frames[-1].startswith("_worker (")
