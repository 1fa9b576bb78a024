"""Summaries of a run: one line, a JSON object for other programs, and the contents of the HTML report."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from cordwood.chaos.checks import count_by_kind
from cordwood.chaos.commit import commit
from cordwood.chaos.live.campaign import Campaign
from cordwood.chaos.live.verdict import RunVerdict
from cordwood.chaos.report.series import longest_silence_s, series
from cordwood.chaos.report.summary import RunReport


def sentence(campaign: Campaign, verdict: RunVerdict, lasted_s: float) -> str:
    """Return the verdict in one line."""
    kinds = count_by_kind(verdict.anomalies)
    found = ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "no anomaly"
    return (
        f"{found}: {len(campaign.spans)} faults in {lasted_s / 60:.1f} minutes, {verdict.acknowledged:,} records "
        f"acknowledged, {verdict.read:,} read, {verdict.transactions.committed:,} transactions committed and "
        f"{verdict.transactions.aborted:,} aborted, {verdict.replicas} brokers' disks looked at "
        f"(seed {campaign.clients.load.seed})"
    )


def summary(campaign: Campaign, verdict: RunVerdict, lasted_s: float) -> dict[str, object]:
    """Return the verdict for other programs. `trace_hash` is None: only a simulated run can be replayed exactly."""
    return {
        "seed": campaign.clients.load.seed,
        "trace_hash": None,
        "anomalies": [asdict(anomaly) for anomaly in verdict.anomalies],
        "kinds": count_by_kind(verdict.anomalies),
        "acknowledged": verdict.acknowledged,
        "read": verdict.read,
        "sent_again": verdict.sent_again,
        "finished_by_share_group": verdict.finished_by_share_group,
        "transactions": {
            "committed": verdict.transactions.committed,
            "aborted": verdict.transactions.aborted,
            "unsure": verdict.transactions.unsure,
        },
        "faults": _fault_counts(campaign),
        "minutes": round(lasted_s / 60, 2),
        "figures": campaign.figures.summary(),
        "longest_silence_s": round(longest_silence_s(verdict.answers, lasted_s), 2),
        "target": campaign.target.name,
        "commit": commit(),
    }


def run_report(campaign: Campaign, verdict: RunVerdict, lasted_s: float, left_out: Mapping[str, str]) -> RunReport:
    """Return the contents of the report."""
    load = campaign.clients.load
    return RunReport(
        seed=load.seed,
        commit=commit(),
        sentence=sentence(campaign, verdict, lasted_s),
        facts={
            "acknowledged": f"{verdict.acknowledged:,}",
            "read": f"{verdict.read:,}",
            "faults": f"{len(campaign.spans)} of {len(_fault_counts(campaign))} kinds",
            "longest time without an acknowledgement": f"{longest_silence_s(verdict.answers, lasted_s):.1f} s",
            "sent again by clients in a new epoch": str(verdict.sent_again),
            "transactions": f"{verdict.transactions.committed:,} committed, {verdict.transactions.aborted:,} aborted, "
            f"{verdict.transactions.unsure:,} without an answer",
            "brokers' disks looked at": str(verdict.replicas),
            "anomalies": str(len(verdict.anomalies)),
            **dict(line.split(": ", 1) for line in campaign.figures.lines(campaign.limits)),
        },
        settings={
            "target": campaign.target.name,
            "faults": ", ".join(campaign.target.faults) or "none",
            **{f"left out: {name}": reason for name, reason in left_out.items()},
            "topic": load.topic,
            "partitions": str(load.partitions),
            "replicas": str(campaign.target.cluster.replicas),
            "producers": f"{load.producers}, {load.per_second} records/s each, idempotent, acks=all",
            "transactional clients": f"{load.transactional}, {load.transactions_per_second} transactions/s each",
            "consumers": f"{load.consumers} by assignment, {load.members} in a group that commits, "
            f"{load.consumer_members} in one of the consumer protocol, {load.share_members} in a share group",
        },
        series=series(verdict.answers, load.partitions, lasted_s),
        partitions=load.partitions,
        faults=campaign.spans,
        anomalies=verdict.anomalies,
    )


def _fault_counts(campaign: Campaign) -> dict[str, int]:
    return dict(sorted(Counter(span.fault for span in campaign.spans).items()))
