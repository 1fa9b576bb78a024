"""Read-process-write, exactly once: the minutes that each flight made up in the air, from one topic to another.

`main` kills a worker of an executor, a broker and the driver while the query runs, and compares the result with pandas.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, struct, to_json
from pyspark.sql.streaming import DataStreamWriter
from rich.console import Console

from cordwood.spark.session import local_session
from examples.flights.cluster import Cluster
from examples.pipelines.tables import FLIGHT, read_flights, records
from examples.pipelines.workplace import Workplace, make_topic

NAME = "made_up_time"
MADE_UP = "carrier string, flight int, origin string, dest string, minutes double"
ROOT = Path(__file__).resolve().parents[2]
KILLED_BROKER = 1
BATCHES_BETWEEN_KILLS = 2
PROGRESS_S = 120.0
WORKERS = b"pyspark.daemon"


def made_up(flights: DataFrame) -> DataFrame:
    """Return a record for each flight that landed: a later departure than arrival means time made up."""
    minutes = (col("row.dep_delay") - col("row.arr_delay")).alias("minutes")
    result = to_json(struct("row.carrier", "row.flight", "row.origin", "row.dest", minutes))
    return flights.where("row.arr_delay is not null").select("key", result.alias("value"))


def query(place: Workplace, flights_a_batch: int = 500) -> DataStreamWriter:
    """Return the streaming query. Each micro-batch is in the topic once, or not yet."""
    make_topic(place.bootstrap, NAME)
    flights = place.read_stream("flights", FLIGHT, {"maxOffsetsPerTrigger": str(flights_a_batch)})
    to_topic = {"kafka.bootstrap.servers": place.bootstrap, "topic": NAME, "deliveryGuarantee": "exactly-once"}
    return made_up(flights).writeStream.format("cordwood").options(**to_topic)


def run(place: Workplace) -> DataFrame:
    """Process all available flights, from where the last run stopped, and return the committed results."""
    place.run(query(place), NAME)
    return place.read(NAME, MADE_UP).select("row.*")


def in_pandas(flights: Any) -> Any:
    """Return the results that pandas computes."""
    landed = flights.dropna(subset=["arr_delay"])
    return landed.assign(minutes=landed["dep_delay"] - landed["arr_delay"])[
        ["carrier", "flight", "origin", "dest", "minutes"]
    ]


def batches(place: Workplace) -> int:
    """Return the number of micro-batches that the query has finished."""
    return len([*(place.directory / "checkpoints" / NAME / "commits").glob("[0-9]*")])


def run_with_kills(place: Workplace, cluster: Cluster, console: Console) -> None:
    """Run the query in another process. Kill workers and a broker while it runs, and at last the process itself."""

    def kill_workers() -> None:
        for worker_pid in workers_of(driver.pid):
            os.kill(worker_pid, signal.SIGKILL)

    kills: dict[str, Callable[[], None]] = {
        "the executor's Python workers were": kill_workers,
        f"broker {KILLED_BROKER} was": lambda: cluster.kill(KILLED_BROKER),
        "the driver was": lambda: os.killpg(driver.pid, signal.SIGKILL),
    }
    # In the root, where `examples` is found, but without the other folders of the root on the path.
    driver = subprocess.Popen(
        [sys.executable, "-m", f"examples.pipelines.{NAME}", place.bootstrap, str(place.directory)],
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        for what, kill in kills.items():
            wait_for_batches(place, batches(place) + BATCHES_BETWEEN_KILLS)
            assert driver.poll() is None, "the driver ended before it was killed"
            kill()
            console.print(f"After {batches(place)} micro-batches, {what} killed.")
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def wait_for_batches(place: Workplace, count: int) -> None:
    """Wait until the query has finished `count` micro-batches. Raises SystemExit if it takes too long."""
    deadline = time.monotonic() + PROGRESS_S
    while batches(place) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"the query has finished only {batches(place)} micro-batches within {PROGRESS_S:.0f} s")
        time.sleep(0.02)


def workers_of(session: int) -> Iterator[int]:
    """Yield the Python workers of the Spark driver that leads a process session."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent, _, its_session = (process / "stat").read_text().rpartition(")")[2].split()[1:4]
            is_worker = WORKERS in Path(f"/proc/{parent}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if is_worker and int(its_session) == session:
            yield int(process.name)


def main() -> int:
    """Run the query with kills and then to its end. Return the exit code: 1 if the result differs from pandas'."""
    console = Console()
    flights = read_flights("2013-01-01", "2013-01-08")
    with (
        tempfile.TemporaryDirectory(prefix="cordwood-pipeline-") as directory,
        Cluster(Path(directory) / "brokers") as cluster,
        local_session() as spark,
    ):
        place = Workplace(spark, cluster.bootstrap, Path(directory))
        place.send("flights", records(flights, key="tailnum"))
        run_with_kills(place, cluster, console)
        found, expected = _sorted(run(place).toPandas()), _sorted(in_pandas(flights))
        is_same = found.equals(expected.astype(found.dtypes))
        console.print(f"{len(found)} records after {batches(place)} micro-batches; pandas has {len(expected)}.")
        console.print("The results are the same." if is_same else "The results DIFFER.")
        return 0 if is_same else 1


def _sorted(rows: Any) -> Any:
    return rows.sort_values([*rows.columns]).reset_index(drop=True)


def drive(bootstrap: str, directory: str) -> None:
    """Run the query in this process. A task that fails is run again, up to three times."""
    with local_session(settings={"spark.master": "local[2,4]"}) as spark:
        run(Workplace(spark, bootstrap, Path(directory)))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        drive(*sys.argv[1:])
    else:
        sys.exit(main())
