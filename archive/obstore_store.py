"""Object stores by URL, on obstore: S3, Google Cloud Storage, Azure and directories.

All retries are made here, with one rule for every kind of store. A put that has failed may have succeeded: a retry then
finds an object of its name, and an object with the same content counts as created.
"""

import asyncio
import errno
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from cordwood.archive.store import (
    ObjectCut,
    ObjectExists,
    ObjectMissing,
    Pace,
    StoredObject,
    StoreError,
    StoreUnavailable,
)
from cordwood.client.properties import read_properties
from cordwood.client.tls import WrongSetting
from cordwood.storage.disk import Bytes

PART_BYTES = 8 << 20
"""Part of an upload in parts, and of a comparison."""
PARTS_AT_ONCE = 4
PIECE_BYTES = 2 << 20
"""Read at a time for a part. Blocks from 4 MiB on are mapped anew each time (`cluster/resources/heap.py`), and their
pages cost more than to read them."""
ATTEMPTS = 5
TIMEOUT_S = 30.0
"""Of one request: a part that takes longer was sent at less than 300 KB/s."""
CONNECT_TIMEOUT_S = 5.0
BACKOFF_S = 0.1
BACKOFF_MAX_S = 5.0
DELETED_AT_ONCE = 1000
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file")
_REASON_CHARACTERS = 300
_QUERY = re.compile(r"\?[^\s\"')]*")
_DETAILS = re.compile(r"\s*Debug source:.*", re.DOTALL)

Result = TypeVar("Result")


def credentials_in(path: str) -> dict[str, str]:
    """Return the settings of a credentials file: lines of `key = value`, by obstore's keys. Raises StoreError."""
    try:
        return read_properties(Path(path))
    except (OSError, WrongSetting) as error:
        raise StoreError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def open_store(
    url: str,
    credentials: Mapping[str, str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    attempts: int = ATTEMPTS,
    backoff_s: float = BACKOFF_S,
) -> "ObstoreStore":
    """Return the objects below `url`: `s3://bucket/prefix`, `gs://…`, `az://container/prefix` or `file:///dir`.

    `credentials` are settings by obstore's keys (`aws_access_key_id`, `endpoint` …), as `credentials_in` returns them;
    the environment has the rest. Sends nothing. Raises StoreError.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (parts.scheme == "file" and (parts.netloc or not parts.path.strip("/"))):
        known = ", ".join(f"{scheme}://" for scheme in ("s3", "gs", "az"))
        raise StoreError(f"{url!r} is not the URL of an object store: use {known} or file:///directory")
    config = dict(credentials or {})
    return ObstoreStore(_opened(url, config, timeout_s), _root_of(url), config, attempts, backoff_s)


def _root_of(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _opened(url: str, config: Mapping[str, str], timeout_s: float) -> Any:
    """Return obstore's object. Imports obstore: only processes with an archive pay for that."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        if _root_of(url) is not None:
            return from_url(url, mkdir=True)
        client = {"timeout": timedelta(seconds=timeout_s), "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S)}
        endpoint = next((value for key, value in config.items() if key.endswith(("endpoint", "endpoint_url"))), None)
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
        if endpoint is not None and endpoint.startswith("http://"):
            client["allow_http"] = True  # type: ignore[assignment]
        return from_url(url, config=config, client_options=client, retry_config={"max_retries": 0})  # type: ignore[call-overload]
    except (BaseError, ValueError, TypeError, OSError) as error:
        raise StoreError(f"{url} cannot be used: {_reason(error, config)}") from None


def _reason(error: BaseException, config: Mapping[str, str]) -> str:
    """Return the first sentence of an error without credentials: URLs lose their queries, which may be signed."""
    text = _QUERY.sub("", _DETAILS.sub("", str(error))).strip() or type(error).__name__
    for key, value in config.items():
        if value and not key.endswith(("endpoint", "endpoint_url", "region", "bucket")):
            text = text.replace(value, "…")
    return " ".join(text.split())[:_REASON_CHARACTERS]


class ObstoreStore:
    """An `ObjectStore` on obstore. Safe to use from one event loop at a time."""

    def __init__(
        self, store: Any, root: Path | None, config: Mapping[str, str], attempts: int, backoff_s: float
    ) -> None:
        """`root` is the directory of a local store. Its files are synced; other stores have promised durability."""
        self._store, self._root, self._config = store, root, config
        self._attempts, self._backoff_s = attempts, backoff_s
        self._random = random.SystemRandom()

    async def put(self, name: str, content: bytes | memoryview) -> None:
        """Create an object. Raises ObjectExists if there is another one of this name."""
        import obstore

        async def create() -> None:
            await obstore.put_async(self._store, name, content, mode="create", use_multipart=False)

        try:
            await self._retried(create, name)
        except ObjectExists:
            # Perhaps by an attempt that seemed to fail.
            if await self.get(name) != content:
                raise
        await self._sync(name)

    async def put_file(self, name: str, path: str, size: int, pace: Pace | None = None) -> None:
        """Create an object of the first `size` bytes of a local file, in parts. Raises as `put`, and OSError.

        A store creates an object of several parts whether its name is in use or not: names are never used twice.
        `pace` delays the pieces of them.
        """
        import obstore

        with open(path, "rb", buffering=0) as file:
            if size <= PART_BYTES:
                if pace is not None:
                    await pace(size)
                await self.put(name, await asyncio.to_thread(_pread, file.fileno(), size, 0))
                return

            async def create() -> None:
                if await self._size_of(name) is not None:
                    raise ObjectExists(f"there is an object named {name}")
                pieces = _pieces(file.fileno(), size, pace)
                await obstore.put_async(self._store, name, pieces, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

            try:
                await self._retried(create, name)
            except ObjectExists:
                if not await self._has_content(name, file.fileno(), size):
                    raise
        await self._sync(name)

    async def get(self, name: str) -> bytes:
        """Return a whole object. Raises ObjectMissing."""
        import obstore

        async def read() -> bytes:
            result = await obstore.get_async(self._store, name)
            content = bytes(await result.bytes_async())
            if len(content) != result.meta["size"]:
                raise _Incomplete(f"{len(content)} of {result.meta['size']} bytes arrived")
            return content

        return await self._retried(read, name, is_read=True)

    async def get_range(self, name: str, start: int, end: int) -> Bytes:
        """Return the bytes from `start` up to `end`. Raises ObjectMissing, and ObjectCut if there are fewer."""
        import obstore
        from obstore.exceptions import BaseError

        async def read() -> Bytes:
            try:
                # Not copied: pages that are touched for the first time cost more than all checksums.
                content = memoryview(await obstore.get_range_async(self._store, name, start=start, end=end))
                if len(content) != end - start:
                    raise _Incomplete(f"{len(content)} of {end - start} bytes arrived")
            except (BaseError, _Incomplete):
                size = await self._size_of(name)
                if size is not None and size < end:
                    raise ObjectCut(f"{name} has only {size} bytes") from None
                raise
            return content

        return b"" if start == end else await self._retried(read, name, is_read=True)

    async def list(self, prefix: str, after: str = "") -> Sequence[StoredObject]:
        """Return the objects whose names begin with `prefix`, by name, from the first one after `after` on."""
        import obstore

        directory = prefix.rpartition("/")[0]

        async def read() -> Sequence[StoredObject]:
            found: dict[str, StoredObject] = {}
            stream = obstore.list(self._store, directory or None, offset=after or None, chunk_size=DELETED_AT_ONCE)
            async for chunk in stream:
                for one in chunk:
                    name = one["path"]
                    if name.startswith(prefix) and name > after:
                        found[name] = StoredObject(name, one["size"], int(one["last_modified"].timestamp() * 1000))
            return [found[name] for name in sorted(found)]

        return await self._retried(read, prefix)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects. An unknown name is passed over."""
        import obstore

        async def delete(some: Sequence[str]) -> None:
            try:
                await obstore.delete_async(self._store, some)
            except FileNotFoundError:
                # Some stores stop at an unknown name.
                if len(some) > 1:
                    for name in some:
                        await delete([name])

        for first in range(0, len(names), DELETED_AT_ONCE):
            some = list(names[first : first + DELETED_AT_ONCE])
            await self._retried(lambda some=some: delete(some), some[0])  # type: ignore[misc]

    async def _retried(self, attempt: Callable[[], Awaitable[Result]], name: str, *, is_read: bool = False) -> Result:
        """Return what `attempt` returns, and repeat it where that may help. Raises StoreError."""
        from obstore import exceptions as errors

        lasting = (
            errors.PermissionDeniedError,
            errors.UnauthenticatedError,
            errors.InvalidPathError,
            errors.NotSupportedError,
            errors.UnknownConfigurationKeyError,
        )
        number = 1
        while True:
            try:
                return await attempt()
            except FileNotFoundError as error:
                if is_read:
                    raise ObjectMissing(f"there is no object named {name}") from None
                # The bucket, or an upload in parts that has been completed by an attempt that seemed to fail.
                failure: Exception = error
            except (errors.AlreadyExistsError, errors.PreconditionError):
                raise ObjectExists(f"there is an object named {name}") from None
            except lasting as error:
                raise StoreError(f"the store refuses {name}: {_reason(error, self._config)}") from None
            except (errors.BaseError, _Incomplete) as error:
                failure = error
            if number == self._attempts:
                reason = _reason(failure, self._config)
                raise StoreUnavailable(f"{name or 'the list'}, after {number} attempts: {reason}")
            number += 1
            await asyncio.sleep(self._random.uniform(0.5, 1) * min(self._backoff_s * 2**number, BACKOFF_MAX_S))

    async def _size_of(self, name: str) -> int | None:
        """Return the size of an object; None if there is none."""
        import obstore

        try:
            return int((await obstore.head_async(self._store, name))["size"])
        except FileNotFoundError:
            return None

    async def _has_content(self, name: str, descriptor: int, size: int) -> bool:
        """Return whether an object is the first `size` bytes of an open file."""

        async def measure() -> int | None:
            return await self._size_of(name)

        if await self._retried(measure, name) != size:
            return False
        for start in range(0, size, PART_BYTES):
            end = min(start + PART_BYTES, size)
            expected = await asyncio.to_thread(_pread, descriptor, end - start, start)
            if await self.get_range(name, start, end) != expected:
                return False
        return True

    async def _sync(self, name: str) -> None:
        if self._root is not None:
            await asyncio.to_thread(_sync_file, self._root, self._root / name)


class _Incomplete(Exception):
    """Fewer bytes than were asked for."""


async def _pieces(descriptor: int, size: int, pace: Pace | None) -> AsyncIterator[bytes]:
    """Yield the first `size` bytes of a file in pieces."""
    for start in range(0, size, PIECE_BYTES):
        count = min(PIECE_BYTES, size - start)
        if pace is not None:
            await pace(count)
        yield await asyncio.to_thread(_pread, descriptor, count, start)


def _pread(descriptor: int, size: int, position: int) -> bytes:
    """Return exactly `size` bytes of a file. Raises OSError."""
    pieces, end = [], position + size
    while position < end:
        piece = os.pread(descriptor, end - position, position)
        if not piece:
            raise OSError(errno.EIO, f"the file ends {end - position} bytes too soon")
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def _sync_file(root: Path, path: Path) -> None:
    """Sync a file and the directories that lead to it: obstore syncs nothing."""
    places = [path, *path.parents]
    for place in places[: places.index(root) + 1]:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
