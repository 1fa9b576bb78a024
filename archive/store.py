"""Object store as the archive needs it: create-only puts, ranges, lists that may lag."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from cordwood.storage.disk import Bytes

Pace = Callable[[int], Awaitable[None]]
"""Waits until so many bytes may be sent."""


class StoreError(Exception):
    """The store has failed or refused, after all retries. The sentence has no credentials."""


class StoreUnavailable(StoreError):
    """The store did not answer, or asked to slow down: the operation may be retried later."""


class ObjectMissing(StoreError):
    """There is no object of this name."""


class ObjectCut(ObjectMissing):
    """The object of this name ends before the bytes that were asked for."""


class ObjectExists(StoreError):
    """A create-only put found an object of this name."""


class StoredObject(NamedTuple):
    """An object as a list shows it. `modified_ms` since 1970; `size` in bytes."""

    name: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """The objects below one prefix of a store. All methods raise StoreError; none blocks the event loop.

    A put that has failed may have succeeded, and a list may lack the newest objects.
    """

    async def put(self, name: str, content: bytes | memoryview) -> None:
        """Create an object. Raises ObjectExists: the store never replaces one."""
        ...

    async def put_file(self, name: str, path: str, size: int, pace: Pace | None = None) -> None:
        """Create an object of the first `size` bytes of a local file, in parts, which `pace` delays.

        Raises as `put`, and OSError.
        """
        ...

    async def get(self, name: str) -> bytes:
        """Return a whole object. Raises ObjectMissing."""
        ...

    async def get_range(self, name: str, start: int, end: int) -> Bytes:
        """Return the bytes from `start` up to `end`. Raises ObjectMissing, and ObjectCut if there are fewer."""
        ...

    async def list(self, prefix: str, after: str = "") -> Sequence[StoredObject]:
        """Return the objects whose names begin with `prefix`, by name, from the first one after `after` on."""
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects. An unknown name is passed over."""
        ...
