"""Fixtures of the pipeline tests: an empty broker, and `examples` as a package without the root on `sys.path`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "__init__.py"

if "examples" not in sys.modules:
    _spec = spec_from_file_location("examples", EXAMPLES, submodule_search_locations=[str(EXAMPLES.parent)])
    assert _spec is not None
    sys.modules["examples"] = module_from_spec(_spec)

from examples.pipelines.workplace import Workplace  # noqa: E402


@pytest.fixture
def place(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Workplace:
    """Return a workplace with the shared session, a new broker, and its directory."""
    return Workplace(spark, broker.bootstrap, tmp_path)
