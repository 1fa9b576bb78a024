"""Change data capture: a register's inserts, updates and deletes, applied to a Delta table."""

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from rich.console import Console

from examples.pipelines.changelog import last_changes
from examples.pipelines.delta import IS_GONE, upserts
from examples.pipelines.tables import PLANE, corrections, read_planes, registrations
from examples.pipelines.workplace import Workplace, own_workplace


def net_changes(changes: DataFrame) -> DataFrame:
    """Return the net changes of a batch: each aircraft once, as a new row or as deleted."""
    last = last_changes(changes)
    return last.select(col("key").alias("tailnum"), "row.*", col("row").isNull().alias(IS_GONE))


def run(place: Workplace, changes_a_batch: int = 2000) -> DeltaTable:
    """Apply all available changes, and return the table."""
    path = place.table("planes")
    upsert = upserts(path, "tailnum", "planes")
    changes = place.read_stream("planes", PLANE, {"maxOffsetsPerTrigger": str(changes_a_batch)})
    place.run(changes.writeStream.foreachBatch(lambda batch, number: upsert(net_changes(batch), number)), "planes")
    return DeltaTable(path)


def main() -> None:
    """Print the register before and after its corrections."""
    console, planes = Console(), read_planes()
    with own_workplace() as place:
        for changes in (registrations(planes), corrections(planes)):
            place.send("planes", changes)
            console.print(run(place).to_pandas()["manufacturer"].value_counts().head(8), "\n")


if __name__ == "__main__":
    main()
