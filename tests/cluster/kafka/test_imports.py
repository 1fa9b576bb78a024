"""Imports after a broker's start: one at a time, and again where one failed."""

import errno
from collections.abc import Callable

from virtual_time import run

from cordwood.cluster.kafka.imports import import_all


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
