"""`python -m cordwood.bench.compaction`: compaction by Cordwood and by Apache Kafka of the same history.

Both get the same records in the same order: keys again and again, tombstones, transactions of which some are aborted
and some stay open across others, several codecs. Then both compact, first to one record for each key, then, after the
delete horizon, to no tombstones. The consumers of both must see the same records, at the same offsets.
"""

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from cordwood.bench.compaction.clients import ConsumedRecord, Writers, create_topic, is_filler, key_of, read, value_of
from cordwood.bench.compaction.history import last_values, pieces
from cordwood.bench.kafka import Kafka
from cordwood.bench.systems import CannotRun, Cordwood, Running, System
from cordwood.client.blocking import connect
from cordwood.client.cut_messages import CreateCutRequest, DescribedCut, DropCutRequest

HOME = Path(__file__).resolve().parent.parent.parent / "build" / "bench"
TOPIC, CUT = "compacted", "comparison"
SEGMENT_BYTES = 4 << 20
DELETE_RETENTION_MS = 3000
BACKOFF_MS = 1000
COMPACTED_S = 300.0
POLL_S = 2.0
MISSING = "nothing"
CUT_S = 6.0
"""How long the cleaner may try to change pinned records."""
CLEANER = {
    "log.cleaner.backoff.ms": str(BACKOFF_MS),
    "log.cleaner.dedupe.buffer.size": str(32 << 20),
    "log.segment.delete.delay.ms": "1000",
}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}


class NotCompacted(Exception):
    """A system did not compact the topic in time."""


@dataclass(frozen=True, slots=True)
class CompactionWorkload:
    """What both systems get."""

    records: int
    keys: int
    partitions: int
    seed: int
    start_ms: int


@dataclass(slots=True)
class View:
    """The records that the consumers of one system got."""

    ends: list[int] = field(default_factory=list)
    """Ends of the partitions after the history."""
    loaded: dict[str, bytes | None] = field(default_factory=dict)
    """Last value of each key before any compaction was waited for."""
    compacted: dict[str, ConsumedRecord] = field(default_factory=dict)
    """The one record of each key, tombstones included."""
    final: dict[str, ConsumedRecord] = field(default_factory=dict)
    """The one record of each key after the delete horizon."""
    seconds: dict[str, float] = field(default_factory=dict)
    cut_offsets: int = 0


def main(
    records: Annotated[int, typer.Option(min=1000)] = 1_000_000,
    keys: Annotated[int, typer.Option(min=10)] = 50_000,
    partitions: Annotated[int, typer.Option(min=1)] = 2,
    seed: int = 1,
    home: Annotated[Path, typer.Option(help="Where the jars of Kafka are kept.")] = HOME,
    is_alone: Annotated[bool, typer.Option("--alone", help="Compare Cordwood with the model only.")] = False,
) -> None:
    """Run the comparison. Exits with 1 and prints the differences, if there are any."""
    work = CompactionWorkload(records, keys, partitions, seed, int(time.time() * 1000) - records)
    systems: list[System] = [Cordwood(1, CLEANER)]
    views: dict[str, View] = {}
    try:
        if not is_alone:
            systems.append(Kafka(home, settings={**CLEANER, "log.cleaner.threads": "1"}))
        for system in systems:
            system.prepare()
            with tempfile.TemporaryDirectory(prefix="compaction-") as place, system.running(Path(place)) as running:
                views[system.name] = observe(running, work, has_cuts=isinstance(system, Cordwood))
            typer.echo(f"{system.name}: {json.dumps(views[system.name].seconds)}", err=True)
    except (CannotRun, NotCompacted) as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(1) from None
    differences = [*against_model(views, work), *between(*views.values())]
    for line in differences:
        typer.echo(line)
    counts = {name: _counts(view) for name, view in views.items()}
    typer.echo(json.dumps({"work": asdict(work), "systems": counts, "differences": len(differences)}))
    if differences:
        raise typer.Exit(1)


def observe(running: Running, work: CompactionWorkload, *, has_cuts: bool) -> View:
    """Write the history to a system and let it compact. Raises NotCompacted."""
    view, bootstrap = View(), running.bootstrap
    create_topic(bootstrap, TOPIC, work.partitions, CONFIGS)
    writers = Writers(bootstrap, TOPIC, work.partitions, work.start_ms)

    def entries(isolation: str = "read_uncommitted") -> list[ConsumedRecord]:
        found, _ = read(bootstrap, TOPIC, work.partitions, isolation)
        return [entry for entry in found if not is_filler(entry)]

    with timed(view, "load"):
        writers.write(pieces(work.records, work.keys, work.seed))
    loaded, view.ends = read(bootstrap, TOPIC, work.partitions, "read_committed")
    view.loaded = {entry.key: entry.value for entry in loaded}
    writers.fill(SEGMENT_BYTES)
    if has_cuts:
        view.cut_offsets = check_cut(bootstrap, entries)
    with timed(view, "compaction"):
        wait_for(lambda: has_one_each(entries()))
    # From here on read_committed: without the records of aborted transactions. There are no open ones.
    view.compacted = {entry.key: entry for entry in entries("read_committed")}
    with timed(view, "deletion"):
        time.sleep((DELETE_RETENTION_MS + BACKOFF_MS) / 1000)

        def is_over() -> bool:
            left = entries()
            if has_one_each(left) and all(entry.value is not None for entry in left):
                return True
            # Cleaners look at a log again when there is something new.
            writers.fill(SEGMENT_BYTES)
            return False

        wait_for(is_over)
    view.final = {entry.key: entry for entry in entries("read_committed")}
    return view


def check_cut(bootstrap: str, entries: Callable[[str], list[ConsumedRecord]]) -> int:
    """Pin the topic, and check that the cleaner leaves its records as they are. Return the number of pinned offsets.

    Raises NotCompacted if they change.
    """
    with closing(connect(bootstrap.split(",")[0], 30.0)) as connection:
        made = connection.ask(CreateCutRequest(name=CUT, topics=(TOPIC,), lifetime_ms=-1))
        (cut,) = made.cuts
        before = _digest(_within(entries("read_committed"), cut))
        time.sleep(CUT_S)
        if _digest(_within(entries("read_committed"), cut)) != before:
            raise NotCompacted("the records of the cut have changed")
        connection.ask(DropCutRequest(name=CUT))
    return sum(row.end - row.start for topic in cut.topics for row in topic.partitions)


def against_model(views: dict[str, View], work: CompactionWorkload) -> Iterator[str]:
    """Yield a sentence for each difference from the history."""
    model = last_values(pieces(work.records, work.keys, work.seed))
    alive = {key_of(key): value_of(value) for key, value in model.items() if value is not None}
    for name, view in views.items():
        compacted = {key: entry.value for key, entry in view.compacted.items()}
        for stage, values in (("loaded", view.loaded), ("compacted", compacted)):
            # Tombstones may be removed already.
            found = {key: value for key, value in values.items() if value is not None}
            yield from _differing(f"{name}, {stage}", found, alive)
        yield from _differing(f"{name}, final", {key: entry.value for key, entry in view.final.items()}, alive)


def between(*views: View) -> Iterator[str]:
    """Yield a sentence for each difference between the systems."""
    for other in views[1:]:
        if views[0].ends != other.ends:
            yield f"the partitions end at {views[0].ends} and at {other.ends}"
        yield from _differing("records that are left", views[0].final, other.final)


def has_one_each(entries: list[ConsumedRecord]) -> bool:
    return len({entry.key for entry in entries}) == len(entries)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds. Raises NotCompacted."""
    deadline = time.perf_counter() + COMPACTED_S
    while not condition():
        if time.perf_counter() > deadline:
            raise NotCompacted(f"the topic was not compacted within {COMPACTED_S:.0f} s")
        time.sleep(POLL_S)


@contextmanager
def timed(view: View, name: str) -> Iterator[None]:
    """Measure the seconds of a block."""
    begin = time.perf_counter()
    yield
    view.seconds[name] = round(time.perf_counter() - begin, 1)


def _differing(what: str, found: Mapping[str, object], due: Mapping[str, object]) -> Iterator[str]:
    keys = sorted(key for key in found.keys() | due.keys() if found.get(key, MISSING) != due.get(key, MISSING))
    if keys:
        key = keys[0]
        pair = f"{found.get(key, MISSING)!r} for {due.get(key, MISSING)!r}"
        yield f"{what}: {len(keys)} keys differ, such as {key}: {pair}"


def _within(entries: list[ConsumedRecord], cut: DescribedCut) -> list[ConsumedRecord]:
    (topic,) = cut.topics
    ranges = {row.partition_index: range(row.start, row.end) for row in topic.partitions}
    return [entry for entry in entries if entry.offset in ranges[entry.partition]]


def _digest(entries: list[ConsumedRecord]) -> str:
    return hashlib.sha256(repr(sorted(entries, key=lambda entry: entry[:2])).encode()).hexdigest()


def _counts(view: View) -> dict[str, object]:
    return {
        "ends": view.ends,
        "keys_loaded": len(view.loaded),
        "compacted": len(view.compacted),
        "tombstones": sum(entry.value is None for entry in view.compacted.values()),
        "final": len(view.final),
        "cut_offsets": view.cut_offsets,
        "seconds": view.seconds,
    }


if __name__ == "__main__":
    typer.run(main)
