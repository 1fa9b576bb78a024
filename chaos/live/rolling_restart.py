"""Rolling restart of all brokers under load: `python -m cordwood.chaos.live.rolling_restart --rounds 10`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.flood.waits import MachineTime, Wait, stalls
from cordwood.chaos.live.flood.watch import BrokerWatch
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, workplace
from cordwood.chaos.live.report import RoundsReport, quantile
from cordwood.chaos.live.silences import silences

REST_S = 11.0
"""librdkafka forgets a failed connection after 10 s, and until then backs off longer with each failure."""

SILENCE_S_MAX = 0.5
"""The longest time without an acknowledgement that a partition may have, with default client settings."""

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    rounds: Rounds = 10,
    rest_s: Annotated[float, typer.Option(min=0, help="The pause between two restarts.")] = REST_S,
    per_second: PerSecond = 200,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Restart all brokers one after the other with SIGTERM, beside clients that have librdkafka's default settings.

    No producer and no member of a group may see an error, no partition may be silent for more than 0.5 s, and every
    acknowledged record must be there, once, in order, and the same on every replica. Exits with 1 where it is not so.
    """
    workload = Workload(per_second=per_second, is_group=True, settings=(), reader_settings=())
    with workplace(keep) as place:
        report = restarts(place, rounds, workload, seed, rest_s)
    report.tell()


def restarts(place: Path, rounds: int, workload: Workload, seed: int, rest_s: float = 0.0) -> RoundsReport:
    """Run all rounds. Report the longest silence of each partition and the longest acknowledgements."""
    cluster = LocalCluster(place)
    run = ClusterRounds("rolling_restart", cluster, place, workload, seed)
    watch = BrokerWatch(list(cluster.brokers.values()), place)
    watch.start()
    try:
        report = run.run(rounds, lambda run: restart_each(run, rest_s))
    finally:
        watch.stop()
    answers = [answer for _, answer in run.clients.answers]
    judge_silences(report, silences(answers), watch.machine)
    if waits := [answer.answered_at - answer.sent_at for answer in answers]:
        report.figures["longest_ack_s"] = round(max(waits), 3)
        report.figures["p99_ack_ms"] = round(quantile(waits, 0.99) * 1e3, 1)
    return report


def judge_silences(report: RoundsReport, found: Sequence[Wait], machine: MachineTime) -> None:
    """Report the longest silence of each partition, and accuse those that are the brokers' fault."""
    for partition in sorted({wait.kind for wait in found}):
        longest = max(wait.seconds for wait in found if wait.kind == partition)
        report.took("longest_silence", longest)
        worst, *_ = stalls((wait for wait in found if wait.kind == partition), machine)
        report.took("longest_silence_blamed", worst.blamed_s)
        if worst.blamed_s > SILENCE_S_MAX:
            report.accuse("silence", f"{worst}, where {SILENCE_S_MAX:g} s are allowed")


def restart_each(run: ClusterRounds, rest_s: float = 0.0) -> None:
    """Restart one broker after the other, each once the one before is in sync again."""
    for id_, broker in run.cluster.brokers.items():
        broker.stop()
        stopped_at = time.monotonic()
        run.cluster.start([id_])
        run.report.took("start", time.monotonic() - stopped_at)
        run.wait_in_sync()
        time.sleep(rest_s)


if __name__ == "__main__":
    app()
