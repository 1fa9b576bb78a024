"""`--fast`, a pytest plugin: unit tests only, for use between two edits.

Left out are files that import a module that starts processes, a Spark session or the simulator, tests with a broker,
and files that took longer than `FILE_S_MAX` when their durations were recorded.
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
    parser.getgroup("general").addoption("--fast", action="store_true", help="only units: no processes, no simulator")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests."""
    if not config.getoption("fast"):
        return
    known = durations()
    slow = [
        item
        for item in items
        if known.get(file_of(item.nodeid), 0.0) > FILE_S_MAX
        or not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or has_slow_imports(item.path)
    ]
    config.hook.pytest_deselected(items=slow)
    left_out = set(slow)
    items[:] = [item for item in items if item not in left_out]


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
