"""Event sourcing: an aircraft's logbook as the sum of its flights, rebuilt from all flights or from a snapshot."""

from pathlib import Path

from pyspark.sql import DataFrame, functions
from pyspark.sql.functions import col, lit, max_by
from rich.console import Console

from examples.pipelines.offsets import EARLIEST, offsets_json
from examples.pipelines.tables import FLIGHT, read_flights, records
from examples.pipelines.workplace import Workplace, own_workplace


def logbooks(flights: DataFrame) -> DataFrame:
    """Return one logbook entry for each flight."""
    flown = flights.where("key is not null and row.air_time is not null")
    return flown.select(
        col("key").alias("tailnum"),
        lit(1).cast("bigint").alias("flights"),
        col("row.air_time").alias("minutes"),
        col("row.distance").alias("miles"),
        col("row.dest").alias("airport"),
        col("offset").alias("as_of"),
    )


def added_up(books: DataFrame) -> DataFrame:
    """Return one logbook for each aircraft. Sums can be added to further entries, in any order."""
    return books.groupBy("tailnum").agg(
        functions.sum("flights").alias("flights"),
        functions.sum("minutes").alias("minutes"),
        functions.sum("miles").alias("miles"),
        max_by("airport", "as_of").alias("airport"),
        functions.max("as_of").alias("as_of"),
    )


def rebuild(place: Workplace) -> DataFrame:
    """Return the logbooks from all flights."""
    return added_up(logbooks(place.read("flights", FLIGHT)))


def take_snapshot(place: Workplace) -> None:
    """Store the current logbooks with their end offsets."""
    ends = place.read("flights", FLIGHT).groupBy("partition").agg(functions.max("offset") + 1)
    offsets = offsets_json("flights", ends, otherwise=EARLIEST)
    until_then = place.read("flights", FLIGHT, {"endingOffsets": offsets})
    added_up(logbooks(until_then)).write.parquet(place.table("snapshot"), mode="overwrite")
    _offsets_file(place).write_text(offsets)


def resume(place: Workplace) -> DataFrame:
    """Return the same logbooks as `rebuild`, from the snapshot and the later flights."""
    snapshot = place.spark.read.parquet(place.table("snapshot"))
    since = place.read("flights", FLIGHT, {"startingOffsets": _offsets_file(place).read_text()})
    return added_up(snapshot.unionByName(logbooks(since)))


def _offsets_file(place: Workplace) -> Path:
    return Path(place.table("snapshot.offsets.json"))


def main() -> None:
    """Take a snapshot after a week; compare both ways to the logbooks after two weeks."""
    with own_workplace() as place:
        place.send("flights", records(read_flights("2013-01-01", "2013-01-08"), key="tailnum"))
        take_snapshot(place)
        place.send("flights", records(read_flights("2013-01-08", "2013-01-15"), key="tailnum"))
        resumed, rebuilt = resume(place), rebuild(place)
        resumed.orderBy("miles", ascending=False).show(10)
        Console().print(f"A rebuild from all flights has {rebuilt.exceptAll(resumed).count()} other books.")


if __name__ == "__main__":
    main()
