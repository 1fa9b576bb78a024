"""Change data capture: the Delta table equals the register, also after a micro-batch that runs twice."""

from frames import assert_same_rows
from spark_scenario import forget_the_last_batch

from examples.pipelines import planes_to_delta
from examples.pipelines.tables import corrections, read_planes, register, registrations
from examples.pipelines.workplace import Workplace

COLUMNS = ["tailnum", "year", "manufacturer", "model", "engines", "seats"]


def test_the_table_follows_inserts_updates_and_deletes(place: Workplace) -> None:
    planes = read_planes()
    place.send("planes", registrations(planes))
    assert_same_rows(planes_to_delta.run(place).to_pandas(), planes[COLUMNS])

    place.send("planes", corrections(planes))
    table = planes_to_delta.run(place)
    assert_same_rows(table.to_pandas(), register(planes)[COLUMNS])

    forget_the_last_batch(place.directory / "checkpoints" / "planes")
    assert planes_to_delta.run(place).version() == table.version()
