"""Replay: a report's mistake is put right from one day on, by reading the log again from the offsets of that day."""

from collections.abc import Callable

from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.functions import col, lit, when
from rich.console import Console

from examples.pipelines.offsets import LATEST, offsets_json
from examples.pipelines.tables import FLIGHT, read_flights, records
from examples.pipelines.workplace import Workplace, own_workplace

Logic = Callable[[], Column]
"""Whether a flight was on time; null where that is not to be judged."""


def left_within_a_quarter_hour() -> Column:
    """The mistake: a cancelled flight has no delay, so it is not judged, and a carrier that cancels looks punctual."""
    return col("row.dep_delay") <= 15


def left_at_all_within_a_quarter_hour() -> Column:
    """What replaces it."""
    return functions.coalesce(left_within_a_quarter_hour(), lit(False))


def punctuality(flights: DataFrame, is_on_time: Logic) -> DataFrame:
    """Each carrier's day: how many flights were judged, and how many were on time."""
    days = flights.groupBy(functions.to_date("timestamp").alias("day"), col("row.carrier").alias("carrier"))
    judged, on_time = functions.count(is_on_time()), functions.count(when(is_on_time(), 1))
    return days.agg(judged.alias("flights"), on_time.alias("on_time"))


def report(place: Workplace, is_on_time: Logic) -> DeltaTable:
    """The report of all days."""
    write_deltalake(_path(place), punctuality(place.read("flights", FLIGHT), is_on_time).toArrow(), mode="overwrite")
    return DeltaTable(_path(place))


def replay(place: Workplace, first_day: str, is_on_time: Logic) -> DeltaTable:
    """The report with other days from this one on. They change in one transaction: no reader sees half of it."""
    since = place.read("flights", FLIGHT, {"filterPushdown": "true"}).where(col("timestamp") >= first_day)
    offsets = offsets_json("flights", since.groupBy("partition").agg(functions.min("offset")), otherwise=LATEST)
    again = punctuality(place.read("flights", FLIGHT, {"startingOffsets": offsets}), is_on_time)
    write_deltalake(_path(place), again.toArrow(), mode="overwrite", predicate=f"day >= '{first_day}'")
    return DeltaTable(_path(place))


def _path(place: Workplace) -> str:
    return place.table("punctuality")


def main() -> None:
    """Two weeks by the first logic; then the second of them by the other."""
    with own_workplace() as place:
        place.send("flights", records(read_flights("2013-01-01", "2013-01-15"), key="tailnum"))
        for table in (
            report(place, left_within_a_quarter_hour),
            replay(place, "2013-01-08", left_at_all_within_a_quarter_hour),
        ):
            Console().print(table.to_pandas().groupby("day")[["flights", "on_time"]].sum(), "\n")


if __name__ == "__main__":
    main()
