"""A changelog topic as a table: each record is a key's new row or a tombstone, and a key's last record counts."""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, max_by


def last_changes(changes: DataFrame) -> DataFrame:
    """Return `key` and the last `row` of each key; null for a tombstone.

    All changes of a key are in one partition, so that their offsets order them.
    """
    return changes.groupBy("key").agg(max_by("row", "offset").alias("row"))


def table_of(changes: DataFrame) -> DataFrame:
    """Return the table after all changes, with the column `key` and the columns of the row."""
    return last_changes(changes).where(col("row").isNotNull()).select("key", "row.*")
