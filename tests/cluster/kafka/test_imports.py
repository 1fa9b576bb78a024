"""Imports after a broker's start: one at a time, and again where one failed."""

import asyncio
import errno
from collections.abc import Callable
from itertools import pairwise

import pytest
from virtual_time import run

from cordwood.cluster.kafka.imports import PAUSE_S, PAUSE_S_MAX, PAUSES_PER_IMPORT, import_all


class Modules:
    """Modules that are noted as they are imported; `failures` are raised by the first imports of "b"."""

    def __init__(self, *failures: Exception) -> None:
        self.imported: list[str] = []
        self._failures = list(failures)

    def imports(self, *names: str) -> list[Callable[[], object]]:
        return [lambda name=name: self._import(name) for name in names]  # type: ignore[misc]

    async def run_blocking(self, function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    def _import(self, name: str) -> None:
        if name == "b" and self._failures:
            raise self._failures.pop(0)
        self.imported.append(name)


def test_an_import_that_fails_is_made_again_before_the_next_one() -> None:
    modules = Modules(OSError(errno.EMFILE, "too many open files"), ImportError("another release is being installed"))
    run(import_all(modules.imports("a", "b", "c"), modules.run_blocking))
    assert modules.imported == ["a", "b", "c"]


def test_imports_take_a_share_of_the_time_only() -> None:
    """A broker that has just started serves clients meanwhile, and other brokers its partitions."""

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        begun_s: list[float] = []

        async def slow(_function: Callable[..., object], *_: object) -> None:
            begun_s.append(clock())
            await asyncio.sleep((0.1, 10.0, 0.0, 0.0)[len(begun_s) - 1])

        await import_all([lambda: None] * 4, slow)
        pauses = [after - before for before, after in pairwise(begun_s)]
        assert pauses == pytest.approx([0.1 + PAUSES_PER_IMPORT * 0.1, 10.0 + PAUSE_S_MAX, PAUSE_S])

    run(scenario())
