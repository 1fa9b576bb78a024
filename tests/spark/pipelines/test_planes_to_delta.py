"""Change data capture: the Delta table equals the register, also after a micro-batch that runs twice."""

from frames import assert_same_rows

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

    forget_the_last_batch(place)
    assert planes_to_delta.run(place).version() == table.version()


def forget_the_last_batch(place: Workplace) -> None:
    """Remove Spark's commit of the last micro-batch, as after a kill between the table's commit and Spark's."""
    commits = place.directory / "checkpoints" / "planes" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
