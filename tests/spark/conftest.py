"""One Spark session for all tests that need one: a second start takes longer than most tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from pyspark.sql import SparkSession
from spark_scenario import Log, SparkScenario

from cordwood.spark.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run a Spark session with two cores that writes nothing below the working directory."""
    session = local_session(settings={"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def active_session(request: pytest.FixtureRequest) -> None:
    """Make the session the active one of the JVM thread that serves this Python thread.

    Writes look up "cordwood" in the active session of their JVM thread. py4j gives a Python thread another connection,
    and so another JVM thread, once py4j takes the first for lost. `createDataFrame` sets the active session again.
    """
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").createDataFrame([(1,)], "x int")


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Run one broker for all tests that need only their own topics. It keeps records with timestamps of any age."""
    broker = RunningBroker(tmp_path_factory.mktemp("shared") / "data", log_retention_ms="-1").start()
    try:
        yield Log(broker.bootstrap)
    finally:
        broker.stop()


@pytest.fixture
def story(spark: SparkSession, log: Log, tmp_path: Path) -> SparkScenario:
    """Return a scenario of the shared session and broker, with a directory for this test."""
    return SparkScenario(spark, log, tmp_path)
