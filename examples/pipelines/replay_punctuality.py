"""Replay: a corrected report from one day on, by reading the log again from that day's offsets."""

from collections.abc import Callable

from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.functions import col, lit, when
from rich.console import Console

from examples.pipelines.offsets import LATEST, offsets_json
from examples.pipelines.tables import FLIGHT, read_flights, records
from examples.pipelines.workplace import Workplace, own_workplace

Logic = Callable[[], Column]
"""Whether a flight was on time; null if the flight is not counted."""


def left_within_a_quarter_hour() -> Column:
    """Return the wrong logic: a cancelled flight has no delay and is not counted, so cancellations look punctual."""
    return col("row.dep_delay") <= 15


def left_at_all_within_a_quarter_hour() -> Column:
    """Return the corrected logic: a cancelled flight is not on time."""
    return functions.coalesce(left_within_a_quarter_hour(), lit(False))


def punctuality(flights: DataFrame, is_on_time: Logic) -> DataFrame:
    """Return the counts of flights and of flights on time, by day and carrier."""
    days = flights.groupBy(functions.to_date("timestamp").alias("day"), col("row.carrier").alias("carrier"))
    judged, on_time = functions.count(is_on_time()), functions.count(when(is_on_time(), 1))
    return days.agg(judged.alias("flights"), on_time.alias("on_time"))


def report(place: Workplace, is_on_time: Logic) -> DeltaTable:
    """Write the report of all days, and return it."""
    write_deltalake(_path(place), punctuality(place.read("flights", FLIGHT), is_on_time).toArrow(), mode="overwrite")
    return DeltaTable(_path(place))


def replay(place: Workplace, first_day: str, is_on_time: Logic) -> DeltaTable:
    """Replace the report from `first_day` on, in one transaction, and return it."""
    since = place.read("flights", FLIGHT, {"filterPushdown": "true"}).where(col("timestamp") >= first_day)
    offsets = offsets_json("flights", since.groupBy("partition").agg(functions.min("offset")), otherwise=LATEST)
    again = punctuality(place.read("flights", FLIGHT, {"startingOffsets": offsets}), is_on_time)
    write_deltalake(_path(place), again.toArrow(), mode="overwrite", predicate=f"day >= '{first_day}'")
    return DeltaTable(_path(place))


def _path(place: Workplace) -> str:
    return place.table("punctuality")


def main() -> None:
    """Report two weeks with the wrong logic, then replay the second week with the corrected one."""
    with own_workplace() as place:
        place.send("flights", records(read_flights("2013-01-01", "2013-01-15"), key="tailnum"))
        for table in (
            report(place, left_within_a_quarter_hour),
            replay(place, "2013-01-08", left_at_all_within_a_quarter_hour),
        ):
            Console().print(table.to_pandas().groupby("day")[["flights", "on_time"]].sum(), "\n")


if __name__ == "__main__":
    main()
