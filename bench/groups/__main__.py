"""`python -m cordwood.bench.groups`: many members of a group, the change of one, and the workers of a share group."""

import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen
from uuid import UUID

import typer
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from cordwood.bench.generator import LoadFailed
from cordwood.bench.groups import shares
from cordwood.bench.groups.crew import Crew
from cordwood.bench.groups.members import KINDS, MembershipPlan
from cordwood.bench.growth.place import TOPIC, BenchPlace, create_topic
from cordwood.bench.machine import cpu_seconds, description
from cordwood.bench.systems import CannotRun
from cordwood.chaos.live.flood.stage import BUCKET
from cordwood.chaos.live.process import BrokerProcess, free_port, wait_for

HOME = Path(__file__).resolve().parents[2] / "build" / "bench"
SHARE = "share"
JOINS_MAX_S, CHANGE_MAX_S, HEARTBEAT_MAX_S, STALL_MAX_S = 10.0, 1.0, 1.0, 0.05
LIMIT_S = 60.0
POLL_S = 0.1
QUIET_S = 3.0
"""How long heartbeats are watched while nothing changes."""


@dataclass(slots=True)
class GroupFigures:
    """One kind of group."""

    kind: str
    members: int
    partitions: int
    heartbeat_ms: int
    joins_s: float = 0.0
    """From the first connection until each member has its partitions in one epoch."""
    leave_s: float = 0.0
    join_s: float = 0.0
    heartbeat_max_ms: dict[str, float] = field(default_factory=dict)
    """The longest latency of a heartbeat of the others, by phase."""
    stall_max_ms: dict[str, float] = field(default_factory=dict)
    """An upper bound of the time for which the broker's loop was blocked, from the begin to the end of each phase."""
    broker_cpu_s: dict[str, float] = field(default_factory=dict)
    load: float = 0.0
    """The machine's load average over a minute, at the end."""
    errors: list[str] = field(default_factory=list)

    def missed(self) -> list[str]:
        """Return the goals that were missed, as sentences."""
        goals = [
            ("joins", self.joins_s, JOINS_MAX_S),
            ("the departure of one member", self.leave_s, CHANGE_MAX_S),
            ("the arrival of one member", self.join_s, CHANGE_MAX_S),
            ("the longest heartbeat", max(self.heartbeat_max_ms.values()) / 1000, HEARTBEAT_MAX_S),
            ("the longest stall", max(self.stall_max_ms.values()) / 1000, STALL_MAX_S),
        ]
        return [
            f"{self.kind}: {what}: {value:.3g} s, at most {limit:g} s" for what, value, limit in goals if value > limit
        ]

    def sentence(self) -> str:
        longest = max(self.heartbeat_max_ms.values())
        return (
            f"{self.kind}: {self.members:,} members had {self.partitions:,} partitions after {self.joins_s:.2f} s, one"
            f" left in {self.leave_s:.2f} s, one came in {self.join_s:.2f} s; the longest heartbeat took"
            f" {longest:.0f} ms, and the broker's loop was blocked for at most {max(self.stall_max_ms.values()):g} ms."
        )


def main(
    members: Annotated[int, typer.Option(min=2)] = 1000,
    partitions: Annotated[int, typer.Option(min=1)] = 1000,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", help=f"{', '.join(KINDS)} or {SHARE}; all without it.")
    ] = None,
    heartbeat_ms: Annotated[int, typer.Option(min=50, help="The interval of heartbeats.")] = 500,
    processes: Annotated[int, typer.Option(min=1, help="Client processes.")] = 2,
    workers: Annotated[int, typer.Option(min=2, help="Of the share group.")] = 10,
    compare: Annotated[bool, typer.Option(help="Measure Apache Kafka too, with the share group alone.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of the share group, each with new brokers.")] = 1,
    scale: Annotated[float, typer.Option(min=0.01, help="The share of the share group's records, for a trial.")] = 1.0,
    saved: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="A file for the figures.")] = None,
) -> None:
    """Measure, print a sentence for each kind of group and all figures as JSON. Exits with 1 if a goal is missed."""
    # SIGTERM becomes SystemExit, which passes through the blocks that stop the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    wanted = kinds or [*KINDS, SHARE]
    if unknown := set(wanted) - {*KINDS, SHARE}:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not a kind of group")
    found = []
    with tempfile.TemporaryDirectory(prefix="cordwood-groups-") as home:
        place = BenchPlace(Path(home), 1.0, _say)
        for kind in (kind for kind in wanted if kind != SHARE):
            found.append(_measure(place, GroupFigures(kind, members, partitions, heartbeat_ms), processes))
            _say(found[-1].sentence())
    results: dict[str, Any] = {"machine": description(), "measured": [asdict(one) for one in found]}
    missed = [sentence for measured in found for sentence in measured.missed()]
    if SHARE in wanted:
        try:
            results[SHARE] = shares.measure(HOME, workers, rounds, scale, is_comparing=compare, say=_say)
        except (CannotRun, LoadFailed) as error:
            _say(str(error))
            raise typer.Exit(1) from None
        missed += results[SHARE]["missed"]
    text = json.dumps({**results, "missed": missed}, indent=1)
    if saved is not None:
        saved.write_text(f"{text}\n")
    sys.stdout.write(f"{text}\n")
    sys.exit(1 if missed else 0)


def _measure(place: BenchPlace, measured: GroupFigures, processes: int) -> GroupFigures:
    http, heartbeat_ms = f"127.0.0.1:{free_port()}", str(measured.heartbeat_ms)
    settings = {"http.listen": http, "group.initial.rebalance.delay.ms": "3000"}
    if measured.kind != "classic":
        for key in ("heartbeat.interval.ms", "min.heartbeat.interval.ms"):
            settings[f"group.{measured.kind}.{key}"] = heartbeat_ms
    with ExitStack() as stack:
        broker = stack.enter_context(place.broker(measured.kind, settings))
        create_topic(broker.address, measured.partitions)
        plan = MembershipPlan("bench", TOPIC, _topic_id(broker), measured.partitions, measured.heartbeat_ms / 1000)
        made = (Crew(broker.host, broker.port, measured.kind, plan) for _ in range(processes))
        group = BenchGroup([stack.enter_context(crew) for crew in made], broker, http, measured)
        measured.joins_s = group.join(measured.members)
        group.watch()
        measured.leave_s = group.leave_one()
        measured.join_s = group.join_one()
    measured.load = round(os.getloadavg()[0], 2)
    return measured


class BenchGroup:
    """The group of all crews, and one change of it after another."""

    def __init__(self, crews: Sequence[Crew], broker: BrokerProcess, http: str, measured: GroupFigures) -> None:
        self._crews, self._broker, self._http, self._measured = crews, broker, http, measured
        self._count = 0

    def join(self, count: int) -> float:
        """Have all members join. Return the seconds until the group is stable."""
        self._count = count
        shares = [count * (number + 1) // len(self._crews) - count * number // len(self._crews)
                  for number in range(len(self._crews))]  # fmt: skip
        return self._change(
            "joins", lambda: [crew.ask("join", share) for crew, share in zip(self._crews, shares, strict=True)]
        )

    def leave_one(self) -> float:
        self._count -= 1
        return self._change("leave", lambda: self._crews[-1].ask("leave"))

    def join_one(self) -> float:
        self._count += 1
        return self._change("join", lambda: self._crews[-1].ask("join", 1))

    def watch(self) -> None:
        """Note the heartbeats while nothing changes."""
        with self._phase("quiet"):
            time.sleep(QUIET_S)

    def _change(self, phase: str, change: Callable[[], object]) -> float:
        with self._phase(phase):
            began = time.monotonic()
            change()
            if not wait_for(self._is_stable, LIMIT_S):
                reports = [crew.report() for crew in self._crews]
                raise TimeoutError(f"{phase}: the group is not stable after {LIMIT_S:.0f} s: {reports}")
            changed_at = max(crew.report().changed_at for crew in self._crews)
        return round(changed_at - began, 3)

    def _is_stable(self) -> bool:
        time.sleep(POLL_S)
        reports = [crew.report() for crew in self._crews]
        epochs = frozenset[int]().union(*(report.epochs for report in reports))
        every = self._measured.partitions
        return (
            sum(report.members for report in reports) == self._count
            and len(epochs) == 1
            and epochs != {-1}
            and sum(report.owned for report in reports) == every
            and sum(report.owned_sum for report in reports) == every * (every - 1) // 2
        )

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        """Note what the others and the broker noticed meanwhile."""
        measured = self._measured
        for crew in self._crews:
            crew.report(is_new=True)
        late, cpu_s = lateness(self._http), cpu_seconds([self._broker.pid])
        yield
        measured.broker_cpu_s[phase] = round(cpu_seconds([self._broker.pid]) - cpu_s, 2)
        measured.stall_max_ms[phase] = 1000 * latest(late, lateness(self._http))
        reports = [crew.report(is_new=True) for crew in self._crews]
        measured.heartbeat_max_ms[phase] = round(1000 * max(report.latency_max_s for report in reports), 1)
        measured.errors += [f"{phase}: {error}" for report in reports for error in report.errors]


def lateness(http: str) -> dict[str, float]:
    """Return the lateness of the broker's timers so far: the number of timers by bucket. Raises OSError."""
    with urlopen(f"http://{http}/metrics", timeout=LIMIT_S) as answer:
        return {bound: float(count) for bound, count in BUCKET.findall(answer.read().decode())}


def latest(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return the upper bound of the latest timer between two readings of cumulative buckets, in seconds."""
    found, below = 0.0, 0.0
    for bound, count in after.items():
        new = count - before.get(bound, 0.0)
        if new > below:
            found, below = math.inf if bound == "+Inf" else float(bound), new
    return found


def _topic_id(broker: BrokerProcess) -> UUID:
    """Return the id of the benchmark's topic. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(LIMIT_S)
    id_ = described.topic_id
    bits = (id_.get_most_significant_bits() % (1 << 64)) << 64 | id_.get_least_significant_bits() % (1 << 64)
    return UUID(int=bits)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    typer.run(main)
