"""`--fast` and `--units`, a pytest plugin: unit tests only.

No unit is a test with a broker, nor one in a file that imports a module that starts processes, Spark or the simulator.
`--fast`, for use between two edits, also leaves out files that took longer than `FILE_S_MAX` when their durations were
recorded.
"""

import ast
from functools import cache
from pathlib import Path

import pytest
from longest_first import durations, file_of

FILE_S_MAX = 1.5

SLOW_IMPORTS = (
    "subprocess",
    "multiprocessing",
    "pyspark",
    "playwright",
    "broker_fixture",
    "local_cluster",
    "command",
    "cordwood.bench",
    "cordwood.chaos.live",
    "cordwood.chaos.mutants",
    "cordwood.chaos.sim.group_scenario",
    "cordwood.chaos.sim.log_scenario",
    "cordwood.chaos.sim.quorum_scenario",
    "cordwood.chaos.sim.replica_scenario",
    "cordwood.chaos.sim.run",
    "cordwood.chaos.sim.turns_scenario",
    "cordwood.chaos.sim.world",
    "cordwood.spark.session",
)
SLOW_FIXTURES = frozenset({"broker", "served", "shared", "spark", "browser"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--fast`."""
    group = parser.getgroup("general")
    group.addoption("--units", action="store_true", help="only units: no processes, no simulator")
    group.addoption("--fast", action="store_true", help=f"only units in files that take at most {FILE_S_MAX} s")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that the options do not select."""
    is_selected = is_fast if config.getoption("fast") else is_unit if config.getoption("units") else None
    if is_selected is not None:
        config.hook.pytest_deselected(items=[item for item in items if not is_selected(item)])
        items[:] = [item for item in items if is_selected(item)]


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test is a unit in a file that does not take long."""
    return durations().get(file_of(item.nodeid), 0.0) <= FILE_S_MAX and is_unit(item)


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test runs without processes and without the simulator."""
    return SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) and not has_slow_imports(item.path)


@cache
def has_slow_imports(path: Path) -> bool:
    """Return whether a file imports one of `SLOW_IMPORTS`, itself or by a module of tests/support."""
    names = imports(path)
    ours = [support for name in names if (support := Path(__file__).with_name(f"{name}.py")).exists()]
    return any(name.startswith(SLOW_IMPORTS) for name in names) or any(map(has_slow_imports, ours))


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names
