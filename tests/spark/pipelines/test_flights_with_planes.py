"""Stream-table join: a correction of the table applies to the flights after it."""

import pandas as pd
from deltalake import DeltaTable
from frames import assert_same_rows

from examples.pipelines.flights_with_planes import enrichment
from examples.pipelines.tables import corrections, read_flights, read_planes, records, register, registrations
from examples.pipelines.workplace import Workplace

COLUMNS = ["tailnum", "carrier", "flight", "distance", "manufacturer", "model", "seats"]


def test_flights_before_and_after_the_register_was_corrected(place: Workplace) -> None:
    planes = read_planes()
    before, after = read_flights("2013-01-01", "2013-01-04"), read_flights("2013-01-04", "2013-01-08")
    place.send("planes", registrations(planes))
    place.send("flights", records(before, key="tailnum"))
    query = enrichment(place).option("checkpointLocation", str(place.directory / "checkpoint")).start()
    query.processAllAvailable()

    place.send("planes", corrections(planes))
    place.send("flights", records(after, key="tailnum"))
    query.processAllAvailable()
    query.stop()

    found = DeltaTable(place.table("flights_with_planes")).to_pandas()[COLUMNS]
    halves = before.merge(planes, on="tailnum", how="left"), after.merge(register(planes), on="tailnum", how="left")
    assert_same_rows(found, pd.concat(halves)[COLUMNS])
