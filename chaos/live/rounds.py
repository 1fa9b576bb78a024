"""Rounds of one fault: each injects it, measures how clients are served, undoes it, and measures the recovery."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.campaign import SERVED_S, Campaign
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.fault import (
    ACKED_BY_NONE,
    CLIENT_ERRORS,
    COMMIT_AGAIN_S,
    COORDINATOR_FAILOVER_S,
    P99_RATIO,
    PRODUCE_AGAIN_S,
    SENT_AGAIN,
    SILENCE_S,
    TRANSACTION_OPEN_S,
    UNREAD_BY_GROUP,
    Form,
    RoundOptions,
)
from cordwood.chaos.live.figures import quantile
from cordwood.chaos.live.flood.waits import NOTED_S, MachineTime, Wait
from cordwood.chaos.live.flood.watch import BrokerWatch
from cordwood.chaos.live.plan import TargetRole
from cordwood.chaos.live.second_protocol import ClusterRoutes, SecondProtocolClient, initialized
from cordwood.chaos.live.verdict import RunVerdict
from cordwood.chaos.report.series import Answers
from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.proposals.topics import TRANSACTION_STATE

PRELOADED, PRELOADED_PARTITIONS = "preloaded", 6
"""A topic of its own, which the brokers hold before the first fault, and its partitions."""
VALUE_BYTES = 50_000
QUEUED_MAX = 1000
ACKED_S = 300.0
CHECKPOINTED_S = 12.0
"""The time after which an idle log has a checkpoint."""


class Moments(NamedTuple):
    """The moments of one round, in seconds from the start of the run."""

    calm_s: float
    struck_s: float
    undone_s: float
    in_sync_s: float


class Rounds:
    """Rounds of one fault in a campaign, in the fault's forms in turn."""

    def __init__(self, campaign: Campaign, options: RoundOptions, forms: Mapping[str, Form], place: Path) -> None:
        cluster = campaign.target.cluster
        assert isinstance(cluster, LocalCluster), "rounds watch the processes of their brokers"
        self._campaign, self._options, self._forms = campaign, options, list(forms.items())
        self._cluster, self._watch = cluster, BrokerWatch(list(cluster.brokers.values()), place)
        self._moments: list[Moments] = []
        self._began_s = self._ended_s = 0.0

    def inject(self, rounds: int) -> None:
        """Run all rounds."""
        campaign = self._campaign
        if self._options.preload_mb:
            preload(self._cluster, self._options.preload_mb, self._options.preloaded_segment_bytes)
        self._began_s = campaign.now_s
        is_watched = any(limit.figure == SILENCE_S for limit in self._options.limits)
        if is_watched:
            self._watch.start()
        try:
            for number in range(rounds):
                name, form = self._forms[number % len(self._forms)]
                self._run(name, form)
                campaign.report(f"round {number + 1} of {rounds}, {name}: {campaign.figures.recent()}")
        finally:
            self._ended_s = campaign.now_s
            if is_watched:
                self._watch.stop()

    def measure(self, verdict: RunVerdict) -> None:
        """Add the figures that have a limit and that the clients' histories show."""
        answers = verdict.answers
        from_histories: Mapping[str, Callable[[], Iterable[float]]] = {
            SENT_AGAIN: lambda: [verdict.sent_again],
            CLIENT_ERRORS: lambda: [verdict.client_errors],
            UNREAD_BY_GROUP: lambda: [verdict.unread_by_group],
            SILENCE_S: lambda: longest_silences_s(
                answers, self._campaign.began_s, self._began_s, self._ended_s, self._watch.machine
            ),
            TRANSACTION_OPEN_S: lambda: verdict.transactions.open_s,
            P99_RATIO: lambda: p99_ratios(answers, self._moments),
        }
        for figure in dict.fromkeys(limit.figure for limit in self._options.limits):
            for value in from_histories.get(figure, list)():
                self._campaign.figures.add(figure, value)

    def _run(self, name: str, form: Form) -> None:
        campaign, options = self._campaign, self._options
        load = campaign.clients.load
        calm_s = campaign.now_s
        time.sleep(campaign.rng.uniform(*options.calm_s))
        victims = campaign.victims(form.fault, form.role)
        is_leading = any(self._cluster.led_by(victim, load.topic) for victim in victims)
        is_coordinator = form.role is TargetRole.COORDINATOR
        shards = [shard for victim in victims if is_coordinator for shard in self._coordinated_by(victim)]
        hold_s, struck_s = campaign.rng.uniform(*options.hold_s), campaign.now_s
        campaign.strike(form.fault, victims)
        held_s = campaign.now_s
        self._measure_failover(shards, struck_s)
        if len(victims) == len(self._cluster.ids):
            campaign.figures.add(ACKED_BY_NONE, len(self._served_after(held_s, hold_s)))
        elif options.is_survived:
            waited_s = campaign.served("during the fault", campaign.began_s + struck_s)
            if waited_s and is_leading:
                campaign.figures.add(PRODUCE_AGAIN_S, waited_s)
            if committed_s := campaign.committed("during the fault", campaign.began_s + struck_s):
                campaign.figures.add(COMMIT_AGAIN_S, committed_s)
        elif not form.fault.is_alone:
            served = self._served_after(held_s, hold_s)
            campaign.figures.add(f"{name}_served_share", len(served) / load.partitions)
        time.sleep(max(held_s + hold_s - campaign.now_s, 0))
        undone_s = campaign.now_s
        campaign.undo()
        self._moments.append(Moments(calm_s, struck_s, undone_s, campaign.now_s))

    def _coordinated_by(self, id_: int) -> list[str]:
        """Return a transactional id in each shard of `__transaction_state` that a broker leads."""
        shards = sum(view.topic == TRANSACTION_STATE for view in self._cluster.partitions())
        return [probe_of(shard, shards) for shard in sorted(self._cluster.led_by(id_, TRANSACTION_STATE))]

    def _measure_failover(self, transactional_ids: Iterable[str], struck_s: float) -> None:
        """Wait until other brokers coordinate these ids, and add the time since the fault."""
        campaign, routes = self._campaign, ClusterRoutes(self._cluster.bootstrap)
        for transactional_id in transactional_ids:
            if initialized(SecondProtocolClient(routes, transactional_id), routes, SERVED_S) is None:
                sentence = f"No broker coordinates {transactional_id} for {SERVED_S:.0f} s during the fault."
                campaign.accuse(Anomaly("unavailable", sentence, (), 1))
            else:
                campaign.figures.add(COORDINATOR_FAILOVER_S, campaign.now_s - struck_s)
        routes.close()

    def _served_after(self, moment_s: float, seconds: float) -> Mapping[int, float]:
        return self._campaign.clients.served_after(self._campaign.began_s + moment_s, seconds)


def probe_of(shard: int, shards: int) -> str:
    """Return a transactional id whose coordinator is the leader of this shard."""
    names = (f"probe-{number}" for number in itertools.count())
    return next(name for name in names if partition_of(name, shards) == shard)


def p99_ratios(answers: Answers, moments: Iterable[Moments]) -> Iterator[float]:
    """Yield each round's p99 of acknowledgements during the recovery, over that of the time before the fault."""
    for each in moments:
        before, during = (
            answers.answered_s[is_within] - answers.sent_s[is_within]
            for start_s, end_s in ((each.calm_s, each.struck_s), (each.undone_s, each.in_sync_s))
            for is_within in [(answers.sent_s >= start_s) & (answers.sent_s < end_s)]
        )
        if len(before) and len(during):
            yield quantile(during.tolist(), 0.99) / quantile(before.tolist(), 0.99)


def preload(cluster: LocalCluster, megabytes: int, segment_bytes: int) -> None:
    """Fill the topic, and wait until its sealed segments are below the recovery point. Raises TimeoutError."""
    cluster.create_topic(PRELOADED, PRELOADED_PARTITIONS, {"segment.bytes": str(segment_bytes)})
    settings = {"batch.size": 900_000, "linger.ms": 20, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number in range(megabytes * 10**6 // VALUE_BYTES):
        while len(producer) > QUEUED_MAX:
            producer.poll(0.05)
        producer.produce(PRELOADED, b"%0*d" % (VALUE_BYTES, number), partition=number % PRELOADED_PARTITIONS)
    if producer.flush(ACKED_S):
        raise TimeoutError(f"{megabytes} MB were not acknowledged in time")
    cluster.wait_in_sync()
    time.sleep(CHECKPOINTED_S)


def silences(answers: Answers, start_s: float, end_s: float) -> Iterator[list[Wait]]:
    """Yield each partition's waits between acknowledgements, by any producer, from `start_s` to `end_s`.

    The longest is always there; the others are left out where they are short.
    """
    is_known = answers.is_acknowledged & (answers.answered_s >= start_s) & (answers.answered_s <= end_s)
    for partition in np.unique(answers.partition).tolist():
        moments = np.sort(answers.answered_s[is_known & (answers.partition == partition)])
        moments = np.concatenate([[start_s], moments, [end_s]])
        waits_s = np.diff(moments)
        noted = np.flatnonzero(waits_s >= min(NOTED_S, waits_s.max()))
        yield [Wait(f"partition {partition}", float(moments[at]), float(moments[at + 1])) for at in noted]


def longest_silences_s(
    answers: Answers, began_s: float, start_s: float, end_s: float, machine: MachineTime
) -> Iterator[float]:
    """Yield each partition's longest silence, less the time that the machine withheld.

    `began_s` is the start of the run on the monotonic clock; the other times count from it.
    """
    for waits in silences(answers, start_s, end_s):
        moved = (Wait(wait.kind, wait.began_s + began_s, wait.ended_s + began_s) for wait in waits)
        yield max(wait.seconds - machine.share_of(wait) for wait in moved)
