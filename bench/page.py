"""The page of a benchmark and its charts, from a saved run: docs/performance.md is one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from cordwood.bench.charts import bars
from cordwood.bench.goals import LINKEDIN, RATIOS
from cordwood.bench.lines import PARTITIONS, WARM_UP
from cordwood.bench.measured import MeasuredCluster, MeasuredRun, ratio
from cordwood.bench.report import Grid, grids, sentences
from cordwood.bench.second_opinion import SETTINGS

PAGE, PICTURES = "performance.md", "pictures/performance"
RESULTS = "results/performance.jsonl"
CHARTS = {
    "M records/s": ("records", "Records of 100 bytes"),
    "MB/s": ("megabytes", "Records of 1 KB"),
    "ms": ("waits", "Waiting times"),
    "s/GB": ("cpu", "Time of the brokers' processors for a gigabyte"),
    "MB": ("memory", "Memory of a broker"),
}
"""By unit: the beginning of the chart's file name, and its title."""


METHOD = """\
`make bench` measures Cordwood alone in about three minutes. `make bench-compare` measures Cordwood and Apache Kafka in
turn, three rounds of each, in about forty minutes. Both start their brokers on free ports and stop them again.

- Every topic has {partitions} partitions. A load of {warm_up} records comes before the first line{each_line}.
- The systems take turns, each with new brokers and all lines; every round begins with another system. Memory is
  touched before each, because the first touch of a page of a virtual machine is many times slower than later ones.
- The load is a small Go program (`bench/load/`, with franz-go), the same for all and with the same settings: no
  compression, batches of up to 1 MB, 5 ms of linger for throughput and none for latency. `ProducerPerformance` is
  Kafka's own tool, as a second opinion ({settings}).
- `cordwood` acknowledges a record when it is on the disks of the in-sync set (`flush.policy=group`), `cordwood, os`
  when it is in their page caches. `kafka` is Kafka with its defaults, which waits for no disk; `kafka, fsync` has
  `log.flush.interval.messages=1`. All have `min.insync.replicas=2` where there are three replicas.
- `cordwood` and `cordwood, os` differ only in the wait for the disk. Their difference is the cost of that wait.
- A latency counts from the time at which a record was due to be sent, so that a stall counts for every record that it
  delays. “one at a time” sends a record when the last one was read, as LinkedIn's tool did in 2014.
- Disk and loopback are measured in every round, without a broker. “disk write” is the best of
  several sizes of appends that are flushed one by one. All replicas count there, as all of them are on this one
  disk.
"""


# Earlier results have no such share: their page must not claim it.
EACH_LINE = """, and {share:.0%} of
  a line's own load before that line, uncounted, so that every system is warm on its path. A line that fails on one
  system fails its round: no figure of that round counts, for no system"""


def main(
    result: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file of bench/results/.")],
    into: Annotated[Path, typer.Argument(file_okay=False, help="The directory for the page and its charts.")],
) -> None:
    """Write a page of any result, to look at. `python docs/generate` makes the one in docs/ from a recorded run."""
    try:
        measured = MeasuredRun.load(result)
    except ValueError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    for name, text in files(measured).items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        typer.echo(str(path))


def files(measured: MeasuredRun) -> dict[str, str]:
    """Return the page and its charts, by path below docs/."""
    drawn = {name: text for part in measured.parts for name, text in pictures(part).items()}
    return {PAGE: page(measured), **drawn}


def pictures(part: MeasuredCluster) -> dict[str, str]:
    """Return the charts of a part: one for each unit with a figure, and one of all ratios."""
    found: dict[str, str] = {}
    for unit, (stem, title) in CHARTS.items():
        rows = {name: of for name, of in part.results.items() if next(iter(of.values())).unit == unit}
        groups = {name: {system: each.median for system, each in of.items()} for name, of in rows.items()}
        theirs = {name: LINKEDIN[part.replicas, name] for name in groups if (part.replicas, name) in LINKEDIN}
        if groups:
            mark = ("LinkedIn 2014", theirs) if theirs else None
            found[_path(stem, part)] = bars(f"{title}: {part.title.lower()}", _unit(unit), groups, mark=mark)
    if times := _times(part):
        asked = {name: RATIOS[part.replicas, name] for name in times if (part.replicas, name) in RATIOS}
        title = f"How many times better than Kafka: {part.title.lower()}"
        found[_path("times", part)] = bars(title, "times", times, mark=("asked", asked))
    return found


def _times(part: MeasuredCluster) -> dict[str, Mapping[str, float]]:
    pairs = {name: part.ours_and_kafkas(name) for name in part.results}
    return {name: {"times": ratio(*pair)} for name, pair in pairs.items() if pair}


def _path(stem: str, part: MeasuredCluster) -> str:
    return f"{PICTURES}/{stem}-{part.replicas}.svg"


def _unit(unit: str) -> str:
    return f"{unit}, less is better" if unit in ("ms", "s/GB", "MB") else f"{unit}, more is better"


def page(measured: MeasuredRun) -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines(measured)) + "\n"


def _lines(measured: MeasuredRun) -> Iterator[str]:
    machine, versions = measured.about["machine"], measured.about["versions"]
    yield "# Performance"
    yield ""
    yield "<!-- Made by `python docs/generate` from what `make bench-compare` measured. -->"
    yield ""
    settings = ", ".join(f"`{key}={value}`" for key, value in SETTINGS.items())
    share = measured.about.get("warm_up_share")
    each_line = EACH_LINE.format(share=share) if share else ""
    yield METHOD.format(partitions=PARTITIONS, warm_up=f"{WARM_UP.records:,}", each_line=each_line, settings=settings)
    yield "## Environment of the run"
    yield ""
    rounds = int(measured.about["rounds"])
    yield f"- {measured.about['at'][:10]}, {'a single round' if rounds == 1 else f'{rounds} rounds'}."
    yield (
        f"- {machine['cores']} cores ({machine['processor']}), {machine['memory_mb'] / 1000:.0f} GB of memory, "
        f"{machine['system']}, Python {machine['python']}. Brokers, load and disk are all on this one machine."
    )
    yield f"- {'; '.join(f'{name}: {version}' for name, version in versions.items())}."
    if "commit" in measured.about:
        yield f"- Commit {measured.about['commit']}. [All figures of all rounds]({RESULTS}), as JSON."
    else:
        yield "- Not recorded, so that the commit is unknown."
    for sentence in sentences(measured):
        yield f"- {sentence}"
    yield ""
    for part in measured.parts:
        yield from _part(part, measured)


def _part(part: MeasuredCluster, measured: MeasuredRun) -> Iterator[str]:
    drawn = list(pictures(part))
    for at, grid in enumerate(grids(part, measured.limits)):
        yield f"{'##' if at == 0 else '###'} {grid.title}"
        yield ""
        if at == 0:
            for name in drawn:
                yield f"![{part.title}: {Path(name).stem.rpartition('-')[0]}]({name})"
                yield ""
        yield from _table(grid, part.systems)
        yield ""


def _table(grid: Grid, numbers: list[str]) -> Iterator[str]:
    yield f"| {' | '.join(grid.header)} |"
    yield f"|{'|'.join('--:' if name in (*numbers, 'times Kafka') else '---' for name in grid.header)}|"
    for row in grid.rows:
        yield f"| {' | '.join(cell.replace(chr(10), '<br>') for cell in row)} |"


if __name__ == "__main__":
    typer.run(main)
