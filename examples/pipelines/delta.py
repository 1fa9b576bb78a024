"""Delta tables without a jar: one transaction a micro-batch, numbered as the batch is, so that none counts twice."""

from collections.abc import Callable

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]
"""What `foreachBatch` calls with a micro-batch and its number."""

IS_GONE = "is_gone"
"""The column that tells a removal from a new row."""


def appends(path: str, application: str) -> Write:
    """Add each batch's rows to a table, which is made on first use.

    `application` stands for one checkpoint, for that is where batches are numbered.
    """

    def append(batch: DataFrame, batch_id: int) -> None:
        if DeltaTable.is_deltatable(path) and _is_done(DeltaTable(path), application, batch_id):
            return
        write_deltalake(path, batch.toArrow(), mode="append", commit_properties=_numbered(application, batch_id))

    return append


def upserts(path: str, key: str, application: str) -> Write:
    """As `appends`, but rows have a boolean `is_gone`, and join, replace or leave the table by their key.

    A batch has each key once.
    """

    def upsert(batch: DataFrame, batch_id: int) -> None:
        changes = batch.toArrow()
        columns = [name for name in changes.column_names if name != IS_GONE]
        table = DeltaTable.create(path, changes.schema.empty_table().select(columns).schema, mode="ignore")
        if _is_done(table, application, batch_id):
            return
        values = {name: f"new.{name}" for name in columns}
        same_key = f"old.{key} = new.{key}"
        (
            table.merge(changes, same_key, "new", "old", commit_properties=_numbered(application, batch_id))
            .when_matched_delete(f"new.{IS_GONE}")
            .when_matched_update(values)
            .when_not_matched_insert(values, f"not new.{IS_GONE}")
            .execute()
        )

    return upsert


def _is_done(table: DeltaTable, application: str, batch_id: int) -> bool:
    last = table.transaction_version(application)
    return last is not None and last >= batch_id


def _numbered(application: str, batch_id: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(application, batch_id)])
