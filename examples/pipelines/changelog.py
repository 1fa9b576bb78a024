"""A topic whose records are a table's changes: by key, a new row or a tombstone. The last one counts."""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, max_by


def last_changes(changes: DataFrame) -> DataFrame:
    """One row for each key: `key` and its last `row`, null where that was a tombstone.

    All changes of a key are in one partition, so that their offsets tell which was last.
    """
    return changes.groupBy("key").agg(max_by("row", "offset").alias("row"))


def table_of(changes: DataFrame) -> DataFrame:
    """The table that all these changes lead to, with the columns `key` and those of the row."""
    return last_changes(changes).where(col("row").isNotNull()).select("key", "row.*")
