"""Event sourcing: a snapshot plus the flights after it gives the same logbooks as a rebuild from all flights."""

from frames import assert_same_rows

from examples.pipelines import logbooks
from examples.pipelines.tables import read_flights, records
from examples.pipelines.workplace import Workplace

COLUMNS = ["tailnum", "flights", "minutes", "miles", "airport"]


def test_a_rebuild_agrees_with_the_snapshot_and_what_came_since(place: Workplace) -> None:
    flights = read_flights("2013-01-01", "2013-01-08")
    place.send("flights", records(flights.iloc[:4000], key="tailnum"))
    logbooks.take_snapshot(place)
    place.send("flights", records(flights.iloc[4000:], key="tailnum"))

    flown = flights.dropna(subset=["tailnum", "air_time"]).groupby("tailnum", as_index=False)
    expected = flown.agg(
        flights=("flight", "size"), minutes=("air_time", "sum"), miles=("distance", "sum"), airport=("dest", "last")
    )
    assert_same_rows(logbooks.resume(place).select(COLUMNS).toPandas(), expected)
    assert_same_rows(logbooks.rebuild(place).select(COLUMNS).toPandas(), expected)
    assert snapshot_flights(place) == len(flights.iloc[:4000].dropna(subset=["tailnum", "air_time"]))


def snapshot_flights(place: Workplace) -> int:
    return sum(row.flights for row in place.spark.read.parquet(place.table("snapshot")).collect())
