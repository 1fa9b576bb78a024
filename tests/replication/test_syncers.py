"""The syncers (kernel AIO and threads): each syncs all files of a group, names the failed ones, and calls back once."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.replication.syncers import AioSyncer, Failure, Syncer, ThreadSyncer
from cordwood.storage.disk import Syncable
from cordwood.storage.real_disk import RealDisk, RealFile


def aio(loop: asyncio.AbstractEventLoop) -> Syncer:
    try:
        return AioSyncer(loop, ThreadPoolExecutor(1))
    except OSError as error:
        check(Requirement.AIO, False, f"this kernel has no AIO: {error}")
        raise


def thread(loop: asyncio.AbstractEventLoop) -> Syncer:
    return ThreadSyncer(loop, ThreadPoolExecutor(1))


@pytest.fixture(params=[aio, thread])
def make(request: pytest.FixtureRequest) -> Callable[[asyncio.AbstractEventLoop], Syncer]:
    chosen: Callable[[asyncio.AbstractEventLoop], Syncer] = request.param
    return chosen


def synced(
    make: Callable[[asyncio.AbstractEventLoop], Syncer], groups: Sequence[Sequence[Syncable]]
) -> list[list[Failure]]:
    """Sync one group after the other. Return the failures of each."""

    async def run() -> list[list[Failure]]:
        loop = asyncio.get_running_loop()
        syncer = make(loop)
        results = []
        for group in groups:
            done: asyncio.Future[list[Failure]] = loop.create_future()
            syncer.sync(group, done.set_result)
            results.append(await asyncio.wait_for(done, 30))
        syncer.close()
        return results

    return asyncio.run(run())


def files(place: Path, count: int) -> list[RealFile]:
    opened = [RealDisk().open(str(place / str(number)), create=True) for number in range(count)]
    for file in opened:
        file.pwrite([b"some"], 0)
    return opened


def test_groups_follow_each_other(make: Callable[[asyncio.AbstractEventLoop], Syncer], tmp_path: Path) -> None:
    opened = files(tmp_path, 6)
    assert synced(make, [opened[:1], [], opened, opened[2:4]]) == [[], [], [], []]


def test_a_group_may_be_larger_than_the_kernels_queue(
    make: Callable[[asyncio.AbstractEventLoop], Syncer], tmp_path: Path
) -> None:
    opened = files(tmp_path, 100)
    assert synced(make, [opened * 15]) == [[]]


def test_directories_are_synced_too(make: Callable[[asyncio.AbstractEventLoop], Syncer], tmp_path: Path) -> None:
    directory = RealDisk().open_directory(str(tmp_path))
    assert synced(make, [[directory, *files(tmp_path, 2)]]) == [[]]


def test_a_failure_is_reported_with_its_file(
    make: Callable[[asyncio.AbstractEventLoop], Syncer], tmp_path: Path
) -> None:
    reader, writer = files(tmp_path, 2)
    # A sync of a pipe fails with EINVAL, as a sync on a broken disk fails with EIO.
    pipe = RealFile("pipe", os.pipe()[1])
    ((failure,),) = synced(make, [[reader, pipe, writer]])
    assert failure[0] is pipe
    assert failure[1].errno == errno.EINVAL


class ThreadNoting(RealFile):
    """A file that records the thread of its sync. The kernel refuses its descriptor."""

    def fileno(self) -> int:
        return 1 << 30

    def sync(self) -> None:
        self.synced_in = threading.get_ident()


def test_what_the_kernel_does_not_take_is_not_synced_on_the_loop(
    make: Callable[[asyncio.AbstractEventLoop], Syncer], tmp_path: Path
) -> None:
    (sound,) = files(tmp_path, 1)
    refused = ThreadNoting("refused", os.open(tmp_path, os.O_RDONLY))
    assert synced(make, [[refused, sound, refused]]) == [[]]
    assert refused.synced_in != threading.get_ident()
