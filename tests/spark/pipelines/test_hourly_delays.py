"""Windowed aggregation: records hours late count, records days late do not, and each hour is emitted once."""

from typing import Any

import pandas as pd
from frames import assert_same_rows

from examples.pipelines import hourly_delays
from examples.pipelines.hourly_delays import in_order_of_departure
from examples.pipelines.tables import read_flights, records
from examples.pipelines.workplace import Workplace


def test_an_hour_waits_a_day_for_its_last_departure(place: Workplace) -> None:
    departures = in_order_of_departure(read_flights("2013-01-01", "2013-01-08"))
    assert departures["dep_delay"].max() > 10 * 60, "no flight is hours late: this would show little"
    days_late, in_time = departures.iloc[:25], departures.iloc[25:]
    place.send("departures", records(in_time, key="tailnum"))
    assert_same_rows(found(place), final_hours(in_time))

    place.send("departures", records(days_late, key="tailnum"))
    assert_same_rows(found(place), final_hours(in_time))


def found(place: Workplace) -> Any:
    hours = hourly_delays.run(place).toPandas()
    hours["hour"] = hours["hour"].dt.tz_localize("UTC")
    return hours


def final_hours(departures: Any) -> Any:
    """Return the figures that pandas computes for hours that ended at least a day before the last departure."""
    hours = departures.groupby(["origin", "time_hour"], as_index=False)
    figures = hours.agg(flights=("flight", "size"), mean_delay=("dep_delay", "mean"))
    is_final = figures["time_hour"] + pd.Timedelta(hours=1) <= departures["time_hour"].max() - pd.Timedelta(days=1)
    return figures[is_final].rename(columns={"time_hour": "hour"})
