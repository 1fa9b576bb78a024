"""Delta tables without a jar: one transaction per micro-batch, with the batch id, so that no batch is applied twice."""

from collections.abc import Callable

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]
"""The callback of `foreachBatch`, with a micro-batch and its batch id."""

IS_GONE = "is_gone"
"""The column that marks a deleted row."""


def appends(path: str, application: str) -> Write:
    """Return a callback that appends each batch's rows to a table, which is created on first use.

    `application` stands for one checkpoint, because batch ids are unique within a checkpoint.
    """

    def append(batch: DataFrame, batch_id: int) -> None:
        if DeltaTable.is_deltatable(path) and _is_done(DeltaTable(path), application, batch_id):
            return
        write_deltalake(path, batch.toArrow(), mode="append", commit_properties=_numbered(application, batch_id))

    return append


def upserts(path: str, key: str, application: str) -> Write:
    """Return a callback that inserts, updates or deletes rows by key; the column `is_gone` marks deletions.

    A batch must have each key at most once. `application` is as for `appends`.
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
