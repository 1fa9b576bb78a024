"""DuckDB and polars query an archive in two lines."""

from pathlib import Path

import duckdb
import polars
from archive_writer import ArchivedLog

import cordwood.archive


def test_duckdb_queries_a_topic(tmp_path: Path) -> None:
    url = filled(tmp_path).writer.url

    orders = cordwood.archive.open(url).read("orders")
    rows = duckdb.sql('SELECT decode(key) AS customer, count(*), max("offset") FROM orders GROUP BY 1 ORDER BY 1')

    assert rows.fetchall() == [("ann", 20, 38), ("bob", 20, 39)]
    assert orders.schema.names[0] == "key"


def test_polars_queries_a_topic(tmp_path: Path) -> None:
    url = filled(tmp_path).writer.url

    orders = polars.DataFrame(cordwood.archive.open(url).read("orders", columns=["key", "offset"]))
    found = orders.group_by("key").agg(polars.len(), polars.max("offset").alias("last")).sort("key")

    assert found.rows() == [(b"ann", 20, 38), (b"bob", 20, 39)]


def filled(directory: Path) -> ArchivedLog:
    log = ArchivedLog(directory)
    for number in range(40):
        log.append(f"order {number}", key=("ann", "bob")[number % 2])
    return log.upload()
