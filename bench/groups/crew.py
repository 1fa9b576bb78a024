"""Crew: the members of one client process, and their reports."""

import asyncio
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

import uvloop

from cordwood.bench.groups.members import KINDS, GroupClient, MembershipNotes, MembershipPlan
from cordwood.bench.growth.place import allow_many_files

CONNECTS_AT_ONCE = 50
REPORT_S = 60.0
END_S = 10.0


@dataclass(frozen=True, slots=True)
class CrewReport:
    """The state of a crew."""

    members: int
    epochs: frozenset[int]
    owned: int
    """Number of partitions that its members have."""
    owned_sum: int
    """Sum of the indexes of those partitions."""
    changed_at: float
    heartbeats: int
    latency_max_s: float
    """The longest latency of a heartbeat since the last report with `since`."""
    errors: tuple[str, ...]


class Crew:
    """A client process with members of one group."""

    def __init__(self, host: str, port: int, kind: str, plan: MembershipPlan) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        self._process = spawn.Process(target=_run, args=(theirs, host, port, kind, plan), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.ask("ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(END_S)

    def ask(self, command: str, argument: Any = None) -> Any:
        """Have the crew do something, and return its reply."""
        self._pipe.send((command, argument))
        if not self._pipe.poll(REPORT_S):
            raise TimeoutError(f"the clients did not {command} within {REPORT_S:.0f} s")
        return self._pipe.recv()

    def report(self, *, is_new: bool = False) -> CrewReport:
        """Return the state. With `is_new`, forget the latencies and errors so far."""
        report: CrewReport = self.ask("report", is_new)
        return report


def _run(pipe: Connection, host: str, port: int, kind: str, plan: MembershipPlan) -> None:
    allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_CrewServer(pipe, host, port, kind, plan).serve())


class _CrewServer:
    """The commands of a crew, in its process."""

    def __init__(self, pipe: Connection, host: str, port: int, kind: str, plan: MembershipPlan) -> None:
        self._pipe, self._host, self._port, self._kind, self._plan = pipe, host, port, kind, plan
        self._notes = MembershipNotes()
        self._members: list[GroupClient] = []
        self._joining: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        is_readable = asyncio.Event()
        loop.add_reader(self._pipe.fileno(), is_readable.set)
        while True:
            await is_readable.wait()
            is_readable.clear()
            while self._pipe.poll():
                command, argument = self._pipe.recv()
                self._pipe.send(self._do(command, argument))

    def _do(self, command: str, argument: Any) -> Any:
        match command:
            case "join":
                task = asyncio.get_running_loop().create_task(self._join(argument))
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
            case "leave":
                # Of the classic protocol the first member leads: its departure is another matter.
                self._members.pop().leave()
            case "report":
                return self._report(is_new=argument)
        return None

    async def _join(self, count: int) -> None:
        """Add members, some connections at a time."""
        loop, limit = asyncio.get_running_loop(), asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def connect() -> None:
            member = KINDS[self._kind](self._plan, self._notes)
            async with limit:
                await loop.create_connection(lambda: member, self._host, self._port)
            self._members.append(member)

        await asyncio.gather(*(connect() for _ in range(count)))

    def _report(self, *, is_new: bool) -> CrewReport:
        notes, members = self._notes, self._members
        report = CrewReport(
            len(members),
            frozenset(member.epoch for member in members),
            sum(len(member.partitions) for member in members),
            sum(sum(member.partitions) for member in members),
            notes.changed_at,
            len(notes.latencies),
            max(notes.latencies, default=0.0),
            tuple(notes.errors[:5]),
        )
        if is_new:
            notes.latencies.clear()
            notes.errors.clear()
        return report
