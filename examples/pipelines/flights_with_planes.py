"""Stream-table join: each flight with its aircraft, as in the register's changelog when the flight is processed."""

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter
from rich.console import Console

from examples.pipelines.changelog import table_of
from examples.pipelines.delta import appends
from examples.pipelines.tables import FLIGHT, PLANE, read_flights, read_planes, records, registrations
from examples.pipelines.workplace import Workplace, own_workplace


def with_planes(flights: DataFrame, planes: DataFrame) -> DataFrame:
    """Return every flight, with nulls for an aircraft that is not in the register."""
    return flights.select("row.*").join(table_of(planes).withColumnRenamed("key", "tailnum"), "tailnum", "left")


def enrichment(place: Workplace) -> DataStreamWriter:
    """Return the streaming query.

    Each micro-batch reads the changelog to its end. So the query has no state, and a correction of the register affects
    only later flights.
    """
    append = appends(place.table("flights_with_planes"), "flights_with_planes")

    def enrich(flights: DataFrame, batch_id: int) -> None:
        append(with_planes(flights, place.read("planes", PLANE)), batch_id)

    return place.read_stream("flights", FLIGHT).writeStream.foreachBatch(enrich)


def run(place: Workplace) -> DeltaTable:
    """Enrich all available flights, and return the table."""
    place.run(enrichment(place), "flights_with_planes")
    return DeltaTable(place.table("flights_with_planes"))


def main() -> None:
    """Print the manufacturers of the aircraft that left New York, with flights and seats."""
    with own_workplace() as place:
        place.send("planes", registrations(read_planes()))
        place.send("flights", records(read_flights("2013-01-01", "2013-01-08"), key="tailnum"))
        makers = run(place).to_pandas().groupby("manufacturer").agg(flights=("flight", "size"), seats=("seats", "sum"))
        Console().print(makers.sort_values("flights", ascending=False).head(10))


if __name__ == "__main__":
    main()
