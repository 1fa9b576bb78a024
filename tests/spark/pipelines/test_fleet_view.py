"""Table-table join: the view follows flights, corrections and removals of either table."""

from typing import Any

from frames import assert_same_rows

from examples.pipelines import fleet_view
from examples.pipelines.tables import corrections, read_flights, read_planes, records, register, registrations
from examples.pipelines.workplace import Workplace


def test_the_view_is_the_join_of_what_both_sides_last_said(place: Workplace) -> None:
    planes, flights = read_planes(), read_flights("2013-01-01", "2013-01-08")
    place.send("planes", registrations(planes))
    place.send("flights", records(flights.iloc[:4000], key="tailnum"))
    assert_same_rows(fleet_view.run(place).to_pandas(), joined(planes, flights.iloc[:4000]))

    place.send("planes", corrections(planes))
    place.send("flights", records(flights.iloc[4000:], key="tailnum"))
    assert_same_rows(fleet_view.run(place).to_pandas(), joined(register(planes), flights))


def joined(planes: Any, flights: Any) -> Any:
    """Return the view that pandas computes from the tables."""
    landings = flights.dropna(subset=["tailnum", "air_time"]).groupby("tailnum").tail(1)
    places = landings.rename(columns={"dest": "airport", "time_hour": "since"})
    return planes.merge(places, on="tailnum")[["tailnum", "manufacturer", "model", "airport", "since"]]
