"""A simulated machine with a real broker: a disk, a clock, and a process that can be killed and restarted."""

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

from cordwood.chaos.sim.cut_jobs import CutJobs
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.environment import DiskSpeed, SimulatedSyncer, SimulatedThreads
from cordwood.chaos.sim.loop import Process
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.chaos.sim.object_store import SimulatedObjects
from cordwood.cluster.broker.broker import Broker
from cordwood.cluster.broker.environment import DiskAccess, Environment
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.registry import load_handlers
from cordwood.storage.disk import sync_directory

DATA = "/data"
KAFKA_PORT, RAFT_PORT = 9092, 9093
BEGAN_MS = 1_700_000_000_000
DESCRIPTORS_MAX = 1 << 16
"""Open file limit of each broker. BEGAN_MS is the wall clock, in milliseconds, at the start of the run."""

# A run must not depend on those before it in the same process.
load_handlers()


class SimulatedHost:
    """The machine of one broker. `on_exit` is called with a reason, in a sentence, when its process ends by itself."""

    def __init__(
        self,
        network: SimulatedNetwork,
        settings: Settings,
        rng: random.Random,
        disks_s: Sequence[tuple[float, float]],
        cut_jobs: CutJobs,
        on_exit: Callable[["SimulatedHost", str], None],
        name: str = "",
        objects: SimulatedObjects | None = None,
    ) -> None:
        """By default the machine has the name that the other brokers know. `objects` are those of the archive."""
        self._objects = objects
        self.broker_id, self.name, self.settings = settings.node_id, name or host_name(settings.node_id), settings
        self.network, self.loop, self.rng, self._on_exit = network, network.loop, rng, on_exit
        self.speeds = {
            path: DiskSpeed(random.Random(rng.random()), disk_s)
            for path, disk_s in zip(settings.log_dirs, disks_s, strict=True)
        }
        """By log directory. All are directories of the one disk, which differ in their latency."""
        self._cut_jobs = cut_jobs
        self.clock_rate, self.clock_jump_s = 1.0, 0.0
        self.on_kill: Callable[[Watched], None] = _nothing
        """Called with the broker just before its process ends."""
        self.process: Process | None = None
        self.broker: Broker | None = None
        self._starting: asyncio.Task[None]
        self._stopping: Process | None = None
        self.insert_disk()

    @property
    def address(self) -> tuple[str, int]:
        """The address for clients."""
        return self.name, KAFKA_PORT

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.is_paused

    @property
    def incarnation(self) -> UUID | None:
        """The incarnation of the running broker; None if no process runs."""
        return None if self.broker is None else self.broker._incarnation

    @property
    def watched(self) -> Watched | None:
        """The observable state of the broker; None until the broker knows the cluster metadata."""
        return None if self.broker is None else self.broker.watched

    def has_failed(self, path: str) -> bool:
        """Return whether the running broker has taken this log directory offline."""
        known = () if self.watched is None else self.watched.replicas.directories
        return any(directory.path == path and directory.is_offline for directory in known)

    def insert_disk(self) -> None:
        """Replace the disk with an empty one."""
        self.disk = SimulatedDisk(random.Random(self.rng.random()))
        self.disk.on_sync = self._synced
        self.disk.on_call = self._cut_jobs.at_disk_call

    def start(self) -> None:
        assert self.process is None, f"{self.name} is running"
        self.network.power_on(self.name)
        process = self.process = Process(self.name, clock_rate=self.clock_rate)
        self.disk.on_death = lambda: self.ended(process, "it was killed in the middle of a write")
        serving = self._serve(process)
        self._starting = self.loop.create_task(serving, context=process.context(), name=f"{self.name} serves")

    def kill(self, *, silently: bool = False) -> None:
        """Kill the process. The page cache survives."""
        if self.watched is not None:
            self.on_kill(self.watched)
        process, self.process, self.broker = self.process, None, None
        if process is not None:
            self.network.kill(process, silently=silently)
        self.disk.kill()
        self._cut_jobs.abandon()

    def power_cut(self, keep: float | None = None) -> None:
        """Cut the power of the machine. No connection is reset, and unsynced data may be lost."""
        self.kill(silently=True)
        self.disk.power_cut(keep)

    def terminate(self) -> None:
        """Send SIGTERM. A process that stops already ignores it."""
        process, broker = self.process, self.broker
        if process is not None and broker is not None and not process.is_paused and process is not self._stopping:
            self._stopping = process
            stopping = self._stop(process, broker, self._starting)
            self.loop.create_task(stopping, context=process.context(), name=f"{self.name} stops")

    def pause(self) -> None:
        if self.process is not None:
            self.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None:
            self.loop.resume(self.process)

    def ended(self, process: Process, why: str) -> None:
        """Kill a process that has ended by itself, and call `on_exit`."""
        if process is self.process:
            self.kill()
            self._on_exit(self, why)

    async def _serve(self, process: Process) -> None:
        try:
            for changed in self.disk.make_directories(DATA):
                sync_directory(self.disk, changed)
            broker = Broker(self.settings, self._outside())
            broker.failure.add_done_callback(lambda failure: self.ended(process, f"it failed: {failure.result()}"))
            self.broker = broker
            await broker.start()
        except Exception as error:
            self._end_soon(process, f"it could not start: {error!r}")

    async def _stop(self, process: Process, broker: Broker, starting: "asyncio.Task[None]") -> None:
        try:
            if starting.done():
                await broker.stop()
            else:
                starting.cancel()
                await asyncio.wait([starting])
        except Exception as error:
            self._end_soon(process, f"it could not stop: {error!r}")
        else:
            self._end_soon(process, "it was stopped")

    def _end_soon(self, process: Process, why: str) -> None:
        self.loop.call_soon(self.ended, process, why)

    def _outside(self) -> Environment:
        threads, objects = SimulatedThreads(self.loop, self.speeds[DATA], self._cut_jobs), self._objects
        return Environment(
            disk=self.disk,
            wall_clock=self._wall_clock,
            clock=self.loop.time,
            rng=random.Random(self.rng.random()),
            run_blocking=threads.run_blocking,
            access=self._access,
            hostname=self.name,
            descriptors_max=DESCRIPTORS_MAX,
            boot_id=self.disk.boot_id,
            close=lambda: None,
            open_store=None if objects is None else lambda: objects.of_host(lambda: self.disk),
        )

    def _access(self, path: str) -> DiskAccess:
        speed = self.speeds[path]
        threads = SimulatedThreads(self.loop, speed, self._cut_jobs)
        return DiskAccess(SimulatedSyncer(self.loop, speed), threads.run_blocking)

    def _wall_clock(self) -> int:
        return BEGAN_MS + int((self.loop.passed_s * self.clock_rate + self.clock_jump_s) * 1000)

    def _synced(self, path: str) -> None:
        trace = self.loop.trace
        if trace is not None:
            trace.happened(self.name + path)


def _nothing(_broker: Watched) -> None:
    """Ignore the kill."""


def host_name(broker_id: int) -> str:
    return f"broker-{broker_id}"
