"""Windowed aggregation with late data: departures by airport and scheduled hour, in order of actual departure."""

from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, functions
from pyspark.sql.functions import col, window
from rich.console import Console

from examples.pipelines.tables import FLIGHT, read_flights, records
from examples.pipelines.workplace import Workplace, own_workplace

LATE_AT_MOST = "1 day"
"""The watermark delay: an hour is final once a departure was scheduled this much later. Later records are dropped."""


def in_order_of_departure(flights: Any) -> Any:
    """Return the flights that left, in order of departure. `minute` is the scheduled minute."""
    left = flights.dropna(subset=["dep_delay"])
    departed = left["time_hour"] + pd.to_timedelta(left["minute"] + left["dep_delay"], unit="min")
    return left.loc[departed.sort_values(kind="stable").index]


def by_hour(departures: DataFrame) -> DataFrame:
    """Return the figures of each airport and hour, once, when they are final."""
    timely = departures.select("row.*").withWatermark("time_hour", LATE_AT_MOST)
    hours = timely.groupBy("origin", window("time_hour", "1 hour"))
    figures = hours.agg(functions.count("*").alias("flights"), functions.avg("dep_delay").alias("mean_delay"))
    return figures.select("origin", col("window.start").alias("hour"), "flights", "mean_delay")


def run(place: Workplace, departures_a_batch: int = 2000) -> DataFrame:
    """Append the final hours to the table, and return the table."""
    departures = place.read_stream("departures", FLIGHT, {"maxOffsetsPerTrigger": str(departures_a_batch)})
    place.append(by_hour(departures), "hourly_delays")
    return place.spark.read.parquet(place.table("hourly_delays"))


def main() -> None:
    """Send a week of departures, then a few of the first day that arrive too late."""
    week = in_order_of_departure(read_flights("2013-01-01", "2013-01-08"))
    console = Console()
    with own_workplace() as place:
        for departures in (week.iloc[10:], week.iloc[:10]):
            place.send("departures", records(departures, key="tailnum"))
            hours = run(place)
            counted = sum(row.flights for row in hours.collect())
            console.print(f"{len(departures)} departures came. Those of final hours are now {counted}.")
        hours.orderBy("hour", "origin").show()


if __name__ == "__main__":
    main()
