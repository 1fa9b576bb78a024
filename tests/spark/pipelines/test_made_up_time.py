"""Read-process-write: the results in the topic equal those of pandas, also after a micro-batch that runs twice."""

from frames import assert_same_rows
from spark_scenario import forget_the_last_batch

from examples.pipelines import made_up_time
from examples.pipelines.tables import read_flights, records
from examples.pipelines.workplace import Workplace


def test_every_flight_is_in_the_results_once(place: Workplace) -> None:
    flights = read_flights("2013-01-01", "2013-01-02")
    place.send("flights", records(flights, key="tailnum"))
    made_up_time.run(place)
    forget_the_last_batch(place.directory / "checkpoints" / made_up_time.NAME)
    assert_same_rows(made_up_time.run(place).toPandas(), made_up_time.in_pandas(flights))
