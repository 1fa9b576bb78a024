"""Table-table join: a materialized view of each registered aircraft's location, maintained from two changelogs."""

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, max_by, struct
from rich.console import Console

from examples.pipelines.delta import IS_GONE, upserts
from examples.pipelines.tables import FLIGHT, PLANE, corrections, read_flights, read_planes, records, registrations
from examples.pipelines.workplace import Workplace, own_workplace


def fleet(planes: DataFrame, flights: DataFrame) -> DataFrame:
    """Return the changed rows of the view, one for each aircraft that is on either side.

    The join is an aggregate over both changelogs; its state is the last row of each key on each side. Rows of one side
    have a null offset for the other side, and `max_by` ignores them. If a side is missing or deleted, the view has no
    row.
    """
    plane = planes.select(col("key").alias("tailnum"), col("row").alias("plane"), col("offset").alias("plane_offset"))
    landing = struct(col("row.dest").alias("airport"), col("row.time_hour").alias("since"))
    place = flights.where("key is not null and row.air_time is not null").select(
        col("key").alias("tailnum"), landing.alias("place"), col("offset").alias("place_offset")
    )
    sides = plane.unionByName(place, allowMissingColumns=True).groupBy("tailnum")
    known = sides.agg(max_by("plane", "plane_offset").alias("plane"), max_by("place", "place_offset").alias("place"))
    is_gone = col("plane").isNull() | col("place").isNull()
    return known.select("tailnum", "plane.manufacturer", "plane.model", "place.*", is_gone.alias(IS_GONE))


def run(place: Workplace) -> DeltaTable:
    """Update the view from both topics, and return it."""
    changed = fleet(place.read_stream("planes", PLANE), place.read_stream("flights", FLIGHT))
    view = place.table("fleet")
    place.run(changed.writeStream.outputMode("update").foreachBatch(upserts(view, "tailnum", "fleet")), "fleet")
    return DeltaTable(view)


def main() -> None:
    """Print the fleet's locations after a week, and again after corrections of the register."""
    console, planes = Console(), read_planes()
    with own_workplace() as place:
        place.send("planes", registrations(planes))
        place.send("flights", records(read_flights("2013-01-01", "2013-01-08"), key="tailnum"))
        console.print(_shown(run(place)))
        place.send("planes", corrections(planes))
        console.print(_shown(run(place)))


def _shown(view: DeltaTable) -> str:
    where = view.to_pandas().sort_values("tailnum")[["tailnum", "manufacturer", "model", "airport"]]
    rows: str = where.to_string(max_rows=10, index=False)
    return rows


if __name__ == "__main__":
    main()
