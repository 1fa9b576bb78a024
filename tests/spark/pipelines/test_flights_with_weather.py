"""Stream-stream join: every flight is joined with the weather of its hour, though all flights arrive first."""

from frames import assert_same_rows

from examples.pipelines import flights_with_weather
from examples.pipelines.tables import read_flights, read_weather, records
from examples.pipelines.workplace import Workplace

COLUMNS = ["origin", "time_hour", "carrier", "flight", "dep_delay", "temp", "wind_speed", "visib"]


def test_every_flight_finds_the_weather_that_comes_after_it(place: Workplace) -> None:
    flights, weather = read_flights("2013-01-01", "2013-01-08"), read_weather("2013-01-01", "2013-01-08")
    place.send("flights", records(flights, key="tailnum"))
    place.send("weather", [])
    assert flights_with_weather.run(place).count() == 0

    place.send("weather", records(weather, key="origin"))
    found = flights_with_weather.run(place).select(COLUMNS).toPandas()

    expected = flights.merge(weather, on=["origin", "time_hour"])[COLUMNS]
    found["time_hour"] = found["time_hour"].dt.tz_localize("UTC")
    assert_same_rows(found, expected)
