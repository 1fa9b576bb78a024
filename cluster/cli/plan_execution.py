"""Execution of a plan by a client: a window of reassignments, progress, a clean stop, and the way back.

Before the first move a file with the old and the new replicas of each partition is written, in the format of Kafka's
reassignment files with one more field, `before`.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordwood.cluster.balance.execution import Execution, Place
from cordwood.cluster.balance.plan import ReplicaMove
from cordwood.cluster.cli.admin import PATIENCE_S, answer_of
from cordwood.cluster.cli.client import Target, admin_client
from cordwood.cluster.cli.exits import ExitCode, Failure, sigterm_as_ctrl_c
from cordwood.cluster.cli.output import note, progress_bar

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

POLL_S = 0.25
MEASURED_S = 1.0
NOTED_S = 10.0
"""Time between two lines of progress without a terminal."""
ELECTED_AT_ONCE = 100
PREFERRED = 0


def write_journal(path: Path, moves: Sequence[ReplicaMove]) -> None:
    """Write the file from which moves are taken back. Raises Failure."""
    rows = [
        {"topic": move.topic, "partition": move.index, "replicas": list(move.after), "before": list(move.before)}
        for move in moves
    ]
    try:
        with path.open("w", encoding="utf-8") as file:
            json.dump({"version": 1, "partitions": rows}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}. Nothing was moved.", ExitCode.USAGE) from None


def read_journal(path: Path) -> list[ReplicaMove]:
    """Return the moves of a file. Raises Failure."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["partitions"]
        return [
            ReplicaMove(row["topic"], row["partition"], tuple(row["before"]), tuple(row["replicas"])) for row in rows
        ]
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}.", ExitCode.USAGE) from None
    except (ValueError, KeyError, TypeError):
        sentence = f"{path} is not a file of moves: give the file that `cordwood balance --execute` named."
        raise Failure(sentence, ExitCode.USAGE) from None


def way_back(admin: "KafkaAdminClient", moves: Sequence[ReplicaMove]) -> tuple[list[ReplicaMove], list[str]]:
    """Return the moves that restore the replicas before, and the partitions that have changed otherwise since."""
    now = _replicas_now(admin, {move.topic for move in moves})
    running = {(where.topic, where.partition) for where in answer_of(admin.list_partition_reassignments, _deadline())}
    back, others = [], []
    for move in moves:
        place = (move.topic, move.index)
        at = now.get(place)
        if at == move.before and place not in running:
            continue
        # A cancelled move leaves the replicas in another order.
        if at == move.after or place in running or (at is not None and sorted(at) == sorted(move.before)):
            back.append(ReplicaMove(move.topic, move.index, move.after, move.before))
        else:
            others.append(move.name)
    return back, others


def execute(admin: "KafkaAdminClient", target: Target, moves: Sequence[ReplicaMove], throttle: int | None) -> None:
    """Make the moves under a replication throttle. Raises Failure for moves that were not made, KeyboardInterrupt.

    After Ctrl-C or SIGTERM the moves that run are cancelled; those that have ended stay.
    """
    run = Execution(moves)
    with sigterm_as_ctrl_c(), _throttled(target, throttle):
        try:
            _run(admin, run, sum(move.copied_bytes for move in moves))
        except KeyboardInterrupt:
            cancelled = _cancel(admin, run)
            note(f"Stopped: {len(run.ended)} moves are complete, {cancelled} were cancelled, the others not begun.")
            raise
    _report(admin, run)


def elect_preferred(admin: "KafkaAdminClient", places: Sequence[Place]) -> None:
    """Elect the preferred leaders of these partitions, where another replica leads. Raises KafkaError."""
    for start in range(0, len(places), ELECTED_AT_ONCE):
        wanted: dict[str, list[int]] = {}
        for topic, index in places[start : start + ELECTED_AT_ONCE]:
            wanted.setdefault(topic, []).append(index)

        def ask(wanted: dict[str, list[int]] = wanted) -> Any:
            return admin.elect_leaders(PREFERRED, wanted, raise_errors=False)

        answer_of(ask, _deadline())


def _run(admin: "KafkaAdminClient", run: Execution, total: int) -> None:
    with progress_bar("moving", total) as advance:
        shown, copied, measured_s = 0, 0, time.monotonic()
        noted_s = measured_s
        while not run.is_over:
            _begin(admin, run)
            time.sleep(POLL_S)
            _collect(admin, run)
            now_s = time.monotonic()
            if now_s - measured_s >= MEASURED_S or run.is_over:
                measured_s = now_s
                copied = sum(move.copied_bytes for move in run.ended) + _copied(admin, run.running)
                advance(max(copied - shown, 0))
                shown = max(shown, copied)
            if now_s - noted_s >= NOTED_S and not sys.stderr.isatty():
                noted_s = now_s
                percent = 100 * copied // total if total else 100
                note(f"{len(run.ended)} moves complete, {len(run.running)} run, {run.waiting} wait; {percent}% copied")


def _begin(admin: "KafkaAdminClient", run: Execution) -> None:
    from kafka import TopicPartition

    begun = run.begin()
    if not begun:
        return
    wanted = {TopicPartition(move.topic, move.index): list(move.after) for move in begun}
    refusals = answer_of(lambda: admin.alter_partition_reassignments(wanted), _deadline())
    for where, refusal in refusals.items():
        if refusal is not None:
            run.refuse((where.topic, where.partition), refusal.description or refusal.__name__)


def _collect(admin: "KafkaAdminClient", run: Execution) -> None:
    """End the moves that no longer run, and elect their preferred leaders."""
    moving = answer_of(admin.list_partition_reassignments, _deadline())
    still = {(where.topic, where.partition) for where in moving}
    ended = [place for place in run.running if place not in still]
    for place in ended:
        run.end(place)
    elect_preferred(admin, ended)


def _copied(admin: "KafkaAdminClient", running: Mapping[Place, ReplicaMove]) -> int:
    """Return the bytes that new replicas have so far, as far as their brokers report them."""
    from kafka.errors import KafkaError

    topics: dict[str, list[int]] = {}
    for (topic, index), move in running.items():
        if move.adding:
            topics.setdefault(topic, []).append(index)
    if not topics:
        return 0
    try:
        described = admin.describe_log_dirs(topics)
    except KafkaError:
        # Progress is only shown: the next look asks again.
        return 0
    copied = 0
    for broker in described:
        for directory in broker["log_dirs"]:
            for topic in directory["topics"]:
                for row in topic["partitions"]:
                    found = running.get((topic["name"], row["partition_index"]))
                    if found is not None and broker["broker"] in found.adding:
                        copied += min(row["partition_size"], found.size_bytes)
    return copied


def _cancel(admin: "KafkaAdminClient", run: Execution) -> int:
    from kafka import TopicPartition

    # The replicas before as the new target, and not a cancellation: that would leave them in another order.
    wanted = {TopicPartition(move.topic, move.index): list(move.before) for move in run.stop()}
    if not wanted:
        return 0
    results = answer_of(lambda: admin.alter_partition_reassignments(wanted), _deadline())
    return sum(refusal is None for refusal in results.values())


def _report(admin: "KafkaAdminClient", run: Execution) -> None:
    """Compare the replicas with the plan. Raises Failure."""
    now = _replicas_now(admin, {move.topic for move in run.ended})
    places = {(move.topic, move.index): move for move in run.ended}
    other = [move.name for place, move in places.items() if place in now and now[place] != move.after]
    refused = [f"{topic}-{index}: {reason}" for (topic, index), reason in run.refused.items()]
    if refused or other:
        changed = [f"{name}: has other replicas than planned" for name in other]
        raise Failure(f"{len(refused) + len(other)} moves were not made: {'; '.join([*refused, *changed][:5])}.")


def _replicas_now(admin: "KafkaAdminClient", topics: set[str]) -> dict[Place, tuple[int, ...]]:
    if not topics:
        return {}
    described = answer_of(lambda: admin.describe_topics(sorted(topics)), _deadline())
    return {
        (topic["name"], row["partition_index"]): tuple(row["replica_nodes"])
        for topic in described
        for row in topic["partitions"]
    }


def _deadline() -> float:
    return time.monotonic() + PATIENCE_S


@contextmanager
def _throttled(target: Target, rate: int | None) -> Iterator[None]:
    """Set the replication throttle, and restore the former one."""
    from cordwood.cluster.cli.moves import set_throttle, throttle_of

    if rate is None:
        yield
        return
    with admin_client(target) as admin:
        before = throttle_of(admin)
        set_throttle(admin, rate)
    try:
        yield
    finally:
        with admin_client(target) as admin:
            set_throttle(admin, before)
