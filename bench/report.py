"""Report of a run for people: tables, and sentences on the limit of each line."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from cordwood.bench.charts import number
from cordwood.bench.goals import (
    LINKEDIN,
    GoalResult,
    against_kafka,
    against_limit,
    at_best,
    held_back,
    shares,
    verdicts,
    winner,
)
from cordwood.bench.limits import (
    DISK_READ,
    DISK_WRITE,
    FLUSH_P50,
    FLUSH_P99,
    FLUSHES,
    LOOPBACK,
    MachineLimits,
)
from cordwood.bench.lines import LINES
from cordwood.bench.measured import MeasuredCluster, MeasuredRun, ratio
from cordwood.bench.rounds import Samples
from cordwood.bench.systems import KAFKA, OURS

_WON = {"ours": "", "theirs": ", Kafka wins", "level": ", level"}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text, for the terminal and for the page."""

    title: str
    header: list[str]
    rows: list[list[str]]


def grids(part: MeasuredCluster, limits: MachineLimits) -> list[Grid]:
    """Return the tables of figures and of their ratios and shares; one table where only Cordwood was measured."""
    values = Grid(part.title, ["", "unit", *part.systems], [_values(part, name) for name in part.results])
    worth = Grid(f"{part.title}: what it is worth", _worth_header(part), [])
    for name in part.results:
        if any(cells := _worth(part, name, limits)):
            worth.rows.append([name, *cells])
    if len(part.systems) > 1:
        return [values, worth]
    of = {name: cells for name, *cells in worth.rows}
    nothing = [""] * (len(worth.header) - 1)
    rows = [[*row, *of.get(row[0], nothing)] for row in values.rows]
    return [Grid(part.title, values.header + worth.header[1:], rows)]


def _values(part: MeasuredCluster, name: str) -> list[str]:
    samples = part.results[name]
    cells = [_cell(samples[system]) if system in samples else "-" for system in part.systems]
    return [name, next(iter(samples.values())).unit, *cells]


def _cell(samples: Samples) -> str:
    """Return the median, and below it the least and the most."""
    if len(samples.values) == 1:
        return number(samples.median)
    return f"{number(samples.median)}\n{number(min(samples.values))} to {number(max(samples.values))}"


def _worth_header(part: MeasuredCluster) -> list[str]:
    others = ["times Kafka", "asked"] if any(map(part.ours_and_kafkas, part.results)) else []
    return ["", *others, "LinkedIn 2014", "of the machine's limits"]


def _worth(part: MeasuredCluster, name: str, limits: MachineLimits) -> list[str]:
    """Return the cells of `_worth_header` after the name."""
    cells: list[str] = []
    if len(_worth_header(part)) > 3:
        pair, asked = part.ours_and_kafkas(name), against_kafka(part, name)
        cells.append(f"{number(ratio(*pair))}{_WON[winner(*pair)]}" if pair else "")
        cells.append("" if asked is None else f"{number(asked.asked)}: {asked.word}{_at_best(part, asked, limits)}")
    linkedin = LINKEDIN.get((part.replicas, name))
    cells.append("" if linkedin is None else number(linkedin))
    reached = shares(part.results[name][OURS], limits) if OURS in part.results[name] else {}
    of_limit = against_limit(part, name, limits) if KAFKA in part.systems else None
    asked_share = f"; {of_limit.asked:.0%} asked: {of_limit.word}" if of_limit else ""
    cells.append(", ".join(f"{limit} {share:.0%}" for limit, share in reached.items()) + asked_share)
    return cells


def _at_best(part: MeasuredCluster, asked: GoalResult, limits: MachineLimits) -> str:
    """Return the bound to print beside a goal that was not reached."""
    best = at_best(part, asked.figure, limits) if asked.is_short else None
    return "" if best is None else f", {number(best)} at best"


def show(console: Console, measured: MeasuredRun) -> None:
    """Print all tables, and below them the notes on the measurement."""
    for part in measured.parts:
        for grid in grids(part, measured.limits):
            console.print(_rich(grid, part.systems))
    for sentence in sentences(measured):
        console.print(sentence, highlight=False)


def _rich(grid: Grid, systems: list[str]) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for at, name in enumerate(grid.header):
        is_number = name == "times Kafka" or name in systems
        table.add_column(name, justify="right" if is_number else "left", no_wrap=at == 0)
    for row in grid.rows:
        table.add_row(*row)
    return table


def sentences(measured: MeasuredRun) -> Iterator[str]:
    """Yield notes on the tables, the machine's limits, the lines at a limit, and the goals that were missed."""
    about, limits = measured.about, measured.limits
    yield f"acks=all unless a line says otherwise. Load from {about['generator']}, on the same machine as the brokers."
    if float(about["scale"]) < 1:
        yield f"Only a part of the work was done ({number(float(about['scale']))}): these figures mean little."
    if int(about["rounds"]) > 1:
        yield f"Medians of {about['rounds']} rounds; below them the least and the most."
    if measured.has_kafka:
        yield "“times Kafka” compares cordwood with kafka, which has no fsync: more than 1 is better in every row."
        yield (
            "A difference within the spread of the rounds is level: neither system has won, and a goal within it is "
            "neither passed nor missed. A single round has no spread."
        )
    if any((part.replicas, name) in LINKEDIN for part in measured.parts for name in part.results):
        yield (
            "“LinkedIn 2014” is context, not a goal: what Kafka did there on three machines of six cores and six disks "
            "each, with the load on three more; in the unit of the row."
        )
    if any(part.replicas > 1 for part in measured.parts):
        yield "CPU is that of all brokers together; memory that of the broker that has most. They share one disk."
    if any(name.startswith("cold read") for part in measured.parts for name in part.results):
        yield "“cold read” comes after all log files were put out of the page cache, by fsync and posix_fadvise."
    yield from about.get("notes", [])
    yield from _machine(str(about["disk"]), limits)
    yield (
        "Beside a time, “one flush” is what a single flush of the disk alone takes of it. More than 100% of the disk's "
        "flushes: one flush serves several connections."
    )
    for part in measured.parts:
        on_disk = held_back(part, limits, DISK_WRITE, DISK_READ, FLUSHES, FLUSH_P50, FLUSH_P99)
        limited = "; ".join(dict.fromkeys(map(_line_of, on_disk))) if on_disk else "none of the lines"
        yield f"{part.title}: what reaches half of what the disk can do, or more, and so is limited by it: {limited}."
    for part in measured.parts if measured.has_kafka else []:
        yield from _falls_short(part, verdicts(part, limits))
        yield from _not_to_be_had(part, limits)


def _line_of(figure: str) -> str:
    """Return the longest line name that the figure's name begins with: several figures may come from one line."""
    return max((line.name for line in LINES if figure.startswith(line.name)), key=len, default=figure)


def _machine(disk: str, limits: MachineLimits) -> Iterator[str]:
    flushes, median_ms, p99_ms = limits.median(FLUSHES), limits.median(FLUSH_P50), limits.median(FLUSH_P99)
    write, read, loopback = limits.median(DISK_WRITE), limits.median(DISK_READ), limits.median(LOOPBACK)
    if flushes and median_ms and p99_ms and write:
        yield (
            f"The disk, {disk}, alone: {number(flushes)} appends of 4 KiB a second, each with an fdatasync "
            f"({number(median_ms)} ms, p99 {number(p99_ms)} ms); large ones at {number(write)} MB/s"
            + (f"; read back cold at {number(read)} MB/s." if read else ".")
        )
    if loopback:
        yield f"Loopback alone, from one process to another by sendfile: {number(loopback)} MB/s."


def _falls_short(part: MeasuredCluster, asked: list[GoalResult]) -> Iterator[str]:
    short, level = [each for each in asked if each.is_short], [each for each in asked if each.is_level]
    if short or level:
        passed = len(asked) - len(short) - len(level)
        sentences = [f"{passed} of {len(asked)} goals passed."]
        sentences += [f"Level: {_listed(level)}."] if level else []
        sentences += [f"Fallen short of: {_listed(short)}."] if short else []
        yield f"{part.title}: {' '.join(sentences)}"
    elif asked:
        yield f"{part.title}: all goals passed, {len(asked)} of them."


def _listed(goals: list[GoalResult]) -> str:
    return "; ".join(
        f"{goal.figure} ({number(goal.reached)} of {number(goal.asked)}, {goal.against})" for goal in goals
    )


def _not_to_be_had(part: MeasuredCluster, limits: MachineLimits) -> Iterator[str]:
    """Yield the goals above the bound that a flush before each answer sets."""
    asked = [verdict for name in part.results if (verdict := against_kafka(part, name)) and verdict.is_short]
    best = [(verdict, at_best(part, verdict.figure, limits)) for verdict in asked]
    beyond = [f"{v.figure} ({number(most)} of {number(v.asked)})" for v, most in best if most and most < v.asked]
    if beyond:
        yield (
            f"{part.title}: “at best” is what cordwood, os reached, no faster than the disk writes, and for a time "
            "with one flush of the disk alone on top. What is asked beyond that is more than this code can do here as "
            f"long as it flushes before it answers: {'; '.join(beyond)}."
        )
