"""Log start offsets, high watermarks and last stable offsets that leaders report.

invented-log-start and log-start-regress: a log start offset that no deletion allows, or that decreases.

Neither Jepsen's kafka workload nor Adya has these classes. A checker that trusts every log start offset excuses every
`lost-write` below that offset.

watermark-regress: the high watermark of a partition decreases, as one client observes it.

Neither Jepsen's kafka workload nor Adya has this class. The class violates monotonic reads, a session guarantee (Terry
et al., 1994), with the client as the session.

wrong-last-stable: a last stable offset above the high watermark.

Neither Jepsen's kafka workload nor Adya has this class. A last stable offset above the first undecided transaction
appears as G1a, and one that is too low as `unseen`.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse, accuse_pairs
from cordwood.chaos.checks.columns import NOTHING, RunningMax, consecutive
from cordwood.chaos.checks.evidence import FOREVER_NS, Evidence
from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN, Outcome


def invented_log_starts(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers, and replicas at the end, whose log start offset is above what DeleteRecords or retention allows."""
    watermarks, logs = evidence.history.watermarks, evidence.history.logs
    sentence = "A log began above what an administrator or retention had allowed"
    reported = ~evidence.is_allowed_start(watermarks.partition, watermarks.log_start, watermarks.at_ns)
    yield from accuse(
        "invented-log-start", sentence, np.flatnonzero(reported), lambda row: (watermarks.operation(row),)
    )
    held = ~evidence.is_allowed_start(logs.partition, logs.log_start, np.full(len(logs), FOREVER_NS))
    yield from accuse("invented-log-start", sentence, np.flatnonzero(held), lambda row: (logs.operation(row),))


def log_start_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of answers in one leader epoch, to any clients, of which the later request got the lower log start.

    The next leader may have a lower log start offset: each follower applies retention at its own time.
    """
    watermarks = evidence.history.watermarks
    reported = np.flatnonzero(
        (watermarks.leader_epoch >= 0) & (watermarks.log_start != UNKNOWN) & (watermarks.invoked_ns != UNKNOWN)
    )
    epochs = 1 + int(watermarks.leader_epoch.max(initial=0))
    leader = watermarks.partition[reported] * epochs + watermarks.leader_epoch[reported]
    known = RunningMax(leader, watermarks.at_ns[reported], watermarks.log_start[reported])
    before = known.before(leader, watermarks.invoked_ns[reported])
    rows = reported[(before != NOTHING) & (watermarks.log_start[reported] < before)]

    def proof(row: int) -> Proof:
        is_higher = (
            (watermarks.partition == watermarks.partition[row])
            & (watermarks.leader_epoch == watermarks.leader_epoch[row])
            & (watermarks.at_ns < watermarks.invoked_ns[row])
            & (watermarks.log_start > watermarks.log_start[row])
        )
        return watermarks.operation(int(np.flatnonzero(is_higher)[0])), watermarks.operation(row)

    yield from accuse("log-start-regress", "A leader's log start went back", rows, proof)


def undone_deletions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find leaders whose log start offset is below a deletion that had completed before the request (KIP-107)."""
    watermarks, deletions = evidence.history.watermarks, evidence.history.deletions
    done = np.flatnonzero((deletions.outcome == Outcome.OK) & (deletions.before != UNKNOWN))
    if not len(done):
        return
    deleted = RunningMax(deletions.partition[done], deletions.ended_ns[done], deletions.before[done])
    until = evidence.bound_until(watermarks.partition, watermarks.leader_epoch, watermarks.invoked_ns)
    is_below = watermarks.log_start < deleted.before(watermarks.partition, until)

    def proof(row: int) -> Proof:
        is_undone = (
            (deletions.partition[done] == watermarks.partition[row])
            & (deletions.ended_ns[done] < until[row])
            & (deletions.before[done] > watermarks.log_start[row])
        )
        return deletions.operation(int(done[np.flatnonzero(is_undone)[0]])), watermarks.operation(row)

    rows = np.flatnonzero((watermarks.log_start != UNKNOWN) & is_below)
    yield from accuse("log-start-regress", "Deleted records were there again", rows, proof)


def watermark_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive answers with a lower high watermark. The operations of a case are the two answers."""
    watermarks = evidence.history.watermarks
    reported = np.flatnonzero((watermarks.high_watermark != UNKNOWN) & (watermarks.leader_epoch != BY_FOLLOWER))
    earlier, later = (
        reported[rows] for rows in consecutive(watermarks.client[reported], watermarks.partition[reported])
    )
    goes_back = watermarks.high_watermark[later] < watermarks.high_watermark[earlier]
    yield from accuse_pairs(
        "watermark-regress",
        "A client saw the high watermark go back",
        watermarks,
        earlier[goes_back],
        later[goes_back],
    )


def wrong_last_stables(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers with a wrong last stable offset. The operation of a case is the answer."""
    watermarks = evidence.history.watermarks
    is_reported = (watermarks.last_stable != UNKNOWN) & (watermarks.high_watermark != UNKNOWN)
    yield from accuse(
        "wrong-last-stable",
        "A last stable offset was above the high watermark",
        np.flatnonzero(is_reported & (watermarks.last_stable > watermarks.high_watermark)),
        lambda row: (watermarks.operation(row),),
    )
