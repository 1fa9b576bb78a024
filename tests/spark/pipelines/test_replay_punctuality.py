"""Replay: days before the chosen day keep their results, and later days get the results of the new logic."""

from typing import Any

import pandas as pd
from frames import assert_same_rows

from examples.pipelines.replay_punctuality import (
    left_at_all_within_a_quarter_hour,
    left_within_a_quarter_hour,
    replay,
    report,
)
from examples.pipelines.tables import read_flights, records
from examples.pipelines.workplace import Workplace

FIRST_DAY = "2013-01-05"


def test_a_new_logic_holds_from_the_day_of_its_offsets(place: Workplace) -> None:
    flights = read_flights("2013-01-01", "2013-01-08")
    flown = flights.dropna(subset=["dep_delay"])
    place.send("flights", records(flights, key="tailnum"))
    assert_same_rows(report(place, left_within_a_quarter_hour).to_pandas(), punctuality(flown))

    expected = pd.concat([punctuality(before(flown)), punctuality(since(flights))])
    assert len(since(flights)) > len(since(flown)), "nothing was cancelled: both logics say the same"
    assert_same_rows(replay(place, FIRST_DAY, left_at_all_within_a_quarter_hour).to_pandas(), expected)


def before(flights: Any) -> Any:
    return flights[flights["time_hour"] < pd.Timestamp(FIRST_DAY, tz="UTC")]


def since(flights: Any) -> Any:
    return flights[flights["time_hour"] >= pd.Timestamp(FIRST_DAY, tz="UTC")]


def punctuality(judged: Any) -> Any:
    days = judged.assign(day=judged["time_hour"].dt.date, on_time=judged["dep_delay"] <= 15)
    return days.groupby(["day", "carrier"], as_index=False).agg(flights=("flight", "size"), on_time=("on_time", "sum"))
