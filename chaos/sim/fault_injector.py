"""Fault injection into a simulated cluster: target choice, limits of the promises, and the end of each fault.

| fault | how it is made | what is lost |
|---|---|---|
| kill | SIGKILL of one process | memory |
| restart, pause | SIGTERM or SIGSTOP of one process | nothing |
| power-cut, blackout | power loss of one host, or of all | memory and, by chance, unsynced data |
| die-in-write | death at one of the next 30 disk changes, half of the time with power loss | as kill or power-cut |
| cut-off, cut-one-way, cut-clients, reset, slow-link | see `disturbances` | nothing |
| slow-disk | each disk operation of one log directory takes 10, 100 or 500 times as long | nothing |
| disk-full | at most 100 kB are free | nothing |
| clock-jump | the wall clock moves by up to 10 minutes, either way | nothing |
| write-error | one write into a log directory fails (EIO); restarted at the end, if that is offline | nothing |
| sync-error | one fsync fails; with one log directory the process ends, or gets a new disk | unsynced data, the disk |
| second-process | a process with a broker's id, elsewhere, with an empty disk | the disk, if it takes the id over |
| bit-flip | one bit of a file | that byte |
| file-missing | a closed segment is removed; an open file is read on | that file |
| file-shortened, file-zeroed | a closed segment ends, or is zero, from a byte on | the rest of that file |
| read-error | one byte of a closed segment cannot be read (EIO) | that byte |
| end-lost | SIGKILL of one process; its log's last segment ends, is zero or has a flipped bit near its end | that end |
| wipe | an empty disk | the disk |

Records acknowledged with acks=all must survive every fault: only one disk at a time loses synced data.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from cordwood.chaos.checks.unavailable import number_of
from cordwood.chaos.report.summary import Span
from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.disk import UNLIMITED_BYTES
from cordwood.chaos.sim.disturbances import DISTURBANCES, Surrounding
from cordwood.chaos.sim.host import SimulatedHost
from cordwood.chaos.sim.plan import COORDINATORS
from cordwood.chaos.sim.schedule import LOSSES, LOSSES_OF_SEGMENTS, FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.store_faults import StoreFault
from cordwood.chaos.sim.store_faults import strike as strike_store
from cordwood.chaos.sim.world import World
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from cordwood.storage.segment_files import SegmentFile, segment_file, segment_path

HURT_S = 45.0
"""The time after which a flipped bit or a loss is found and repaired. Only then may another disk lose data."""
TRUSTED_S = 5.0
"""The time after which a replaced disk counts as good, once its broker is in sync and its voter counts."""
CLOCK_JUMP_S = 600.0
END_BYTES = 4096
"""Bytes at the end of a log within which it is harmed while its broker is down."""
PATIENCE_S = 10.0
"""The time that a loss waits for a redundant cluster and a closed segment. Some runs have either only at times."""
WITHOUT_VOTE_SHARE = 0.8
"""The share of second processes that have the id of a broker without a vote, where there is one."""
SETTLED_S = 2.5
"""The time after the last fault after which a redundant cluster has recovered: no session is about to expire."""
OFFLINE = "log-directory-offline"
"""A broker went on without a log directory, after a write error in it."""
ARMED_S = 1.0
"""The time within which an armed error strikes, or not at all: before another disk may lose data."""
AGAIN_S = 1.0
"""The time after which a paused broker is asked again to stop, and after which a loss is tried again."""
MOMENTARY = {
    FaultKind.RESTART,
    FaultKind.RESET,
    FaultKind.DIE_IN_WRITE,
    FaultKind.SYNC_ERROR,
    FaultKind.BIT_FLIP,
    FaultKind.CLOCK_JUMP,
    *LOSSES,
}
"""Kinds without a duration."""

Strike = Callable[[SimulatedHost, ScheduledFault, random.Random], None]


@dataclass(slots=True)
class _Injury:
    """A disk that has lost data, or may return wrong data, since `since_s`."""

    since_s: float
    is_trusted: bool
    """Whether the disk is good once its broker is in sync. A flipped bit or a loss may remain after that."""


class FaultInjector:
    """Executor of a fault schedule. `heal` ends all faults."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.spans: list[Span] = []
        """The faults that struck, with their durations."""
        self._is_healed = False
        self._injuries: dict[int, _Injury] = {}
        self._failing: dict[int, random.Random] = {}
        """Hosts whose next sync fails, with the generator that decides whether the disk is replaced."""
        self._dying: dict[int, random.Random] = {}
        """Hosts whose process dies in one of its next writes."""
        self._distrusted: set[int] = set()
        """Disks that get no power cut. After a failed sync the page cache may show data that is not on disk; a power
        cut after a lost end may set the log's flush mark back, and the damage counts as a torn write then."""
        self._strikes: dict[FaultKind, Strike] = {
            FaultKind.KILL: self._kill,
            FaultKind.POWER_CUT: self._power_cut,
            FaultKind.BLACKOUT: self._blackout,
            FaultKind.PAUSE: self._pause,
            FaultKind.RESTART: self._restart,
            FaultKind.SLOW_DISK: self._slow_disk,
            FaultKind.DIE_IN_WRITE: self._die_in_write,
            FaultKind.SYNC_ERROR: self._sync_error,
            FaultKind.DISK_FULL: self._disk_full,
            FaultKind.BIT_FLIP: self._bit_flip,
            FaultKind.WIPE: self._wipe,
            FaultKind.CLOCK_JUMP: self._clock_jump,
            FaultKind.WRITE_ERROR: self._write_error,
            FaultKind.SECOND_PROCESS: self._second_process,
            FaultKind.END_LOST: self._lose_end,
            **dict.fromkeys(LOSSES, self._lose),
        }
        world.on_exit = self._exited
        world.has_injuries = self._has_injuries

    async def run(self, faults: Sequence[ScheduledFault]) -> None:
        """Strike each fault at its time, counted from now."""
        began_s = self._world.now_s
        for store_fault in self._world.plan.store_faults:
            self._world.later(store_fault.at_s, partial(self._strike_store, store_fault))
        for fault in faults:
            await asyncio.sleep(max(0.0, began_s + fault.at_s - self._world.now_s))
            patience_s = PATIENCE_S if fault.kind in LOSSES_OF_SEGMENTS else 0.0
            self._strike_within(fault, self._world.now_s + patience_s)
            self._world.look()

    def _strike_within(self, fault: ScheduledFault, until_s: float) -> None:
        """Strike one fault as soon as it may, up to `until_s`."""
        if not self._is_healed and not self.strike(fault) and self._world.now_s < until_s:
            self._world.later(AGAIN_S, partial(self._strike_within, fault, until_s))

    def strike(self, fault: ScheduledFault) -> bool:
        """Strike one fault now, unless it would exceed what the promises tolerate. Return whether it was struck."""
        dice = random.Random(fault.dice)
        host = self._target(fault, dice)
        may_strike = self._may_strike(fault.kind, host)
        if may_strike:
            now_s = self._world.now_s
            lasts_s = 0.0 if fault.kind in MOMENTARY else fault.lasts_s
            self._record(fault.kind, now_s, now_s + lasts_s)
            self.spans.append(Span(fault.kind.value, f"{host.name} ({fault.aim.value})", now_s, now_s + lasts_s))
            self._world.note(f"{fault.kind.value} {host.name}")
            self._strikes.get(fault.kind, self._disturb)(host, fault, dice)
        return may_strike

    def _strike_store(self, fault: StoreFault) -> None:
        objects, now_s = self._world.objects, self._world.now_s
        if objects is not None and not self._is_healed:
            self._world.note(fault.kind.value)
            self.spans.append(Span(fault.kind.value, "object store", now_s, now_s + fault.lasts_s))
            strike_store(objects, fault, self._world.later)

    def _record(self, kind: FaultKind, now_s: float, until_s: float) -> None:
        """Record a fault in the history, for the check of availability bounds.

        A cluster without a spare replica may refuse acks=all for as long as the fault lasts, so that no bound holds.
        """
        ends_s = [0.0, *(span.end_s for span in self.spans)]
        is_redundant = not self._has_injuries() and self._world.is_redundant() and self._world.has_spare_replicas()
        is_alone = is_redundant and max(ends_s) + SETTLED_S < now_s
        self._world.clients.history.fault(
            number_of(kind.value), int(now_s * 1e9), int(until_s * 1e9), is_alone=is_alone
        )

    def heal(self) -> None:
        """End every fault. Lost data stays lost."""
        world = self._world
        self.spans = [replace(span, end_s=min(span.end_s, world.now_s)) for span in self.spans]
        self._is_healed = True
        if world.objects is not None:
            world.objects.heal()
        world.network.heal()
        for broker_id in world.second_hosts:
            world.end_second(broker_id)
        for host in world.hosts.values():
            host.disk.faults.heal()
            host.disk.capacity_bytes = UNLIMITED_BYTES
            for speed in host.speeds.values():
                speed.factor = 1.0
            host.resume()
            if any(host.has_failed(path) for path in host.settings.log_dirs):
                host.kill()
            world.start(host.broker_id)

    def _disturb(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        """Strike one of the network faults."""
        world = self._world
        others = [other.name for other in world.hosts.values() if other is not host]
        peers = DISTURBANCES[fault.kind](Surrounding(world.network, host.name, others, world.clients.hosts), dice)

        def heal() -> None:
            for peer in peers:
                world.network.heal(host.name, peer)

        world.later(fault.lasts_s, heal)

    def _kill(self, host: SimulatedHost, fault: ScheduledFault, _dice: random.Random) -> None:
        self._take_down(host, host.kill, fault.lasts_s)

    def _power_cut(self, host: SimulatedHost, fault: ScheduledFault, _dice: random.Random) -> None:
        self._take_down(host, host.power_cut, fault.lasts_s)

    def _blackout(self, _host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        for host in self._world.hosts.values():
            self._take_down(host, self._harm(host), dice.uniform(0.1, fault.lasts_s))

    def _pause(self, host: SimulatedHost, fault: ScheduledFault, _dice: random.Random) -> None:
        host.pause()
        self._world.later(fault.lasts_s, host.resume)

    def _restart(self, host: SimulatedHost, _fault: ScheduledFault, _dice: random.Random) -> None:
        host.terminate()

    def _slow_disk(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        factor = dice.choice((10.0, 100.0, 500.0))
        path = dice.choice(tuple(host.speeds))
        speed = host.speeds[path]
        speed.factor = factor
        self._world.note(f"slow: {path}")
        self._world.later(fault.lasts_s, lambda: setattr(speed, "factor", 1.0))

    def _die_in_write(self, host: SimulatedHost, _fault: ScheduledFault, dice: random.Random) -> None:
        self._dying[host.broker_id] = dice
        host.disk.faults.die_after(dice.randrange(30))

    def _sync_error(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        self._injure(host)
        if len(host.settings.log_dirs) == 1:
            self._failing[host.broker_id] = dice
            host.disk.faults.fail_next_sync(dice.choice(("", "/topics/", "/metadata/")))
            return
        # The process goes on if the failed directory is not that of the metadata, and ends at any time later.
        self._distrusted.add(host.broker_id)
        directory, path = _place(host, dice)
        host.disk.faults.fail_next_sync(path)
        self._world.note(f"the next sync fails: {path}")
        self._restart_without(host, directory, path, fault.lasts_s)

    def _write_error(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        if len(host.settings.log_dirs) > 1:
            # Without this directory the broker goes on, and reports its replicas as lost.
            self._injure(host)
        directory, path = _place(host, dice)
        host.disk.faults.fail_next_write(path, after=dice.choice((0, dice.randrange(200))))
        self._world.note(f"the next write fails: {path}")
        self._restart_without(host, directory, path, fault.lasts_s)

    def _restart_without(self, host: SimulatedHost, directory: str, path: str, after_s: float) -> None:
        """Disarm the fault of `path` soon. Restart the broker after a time, if it goes on without `directory`."""
        began_s, faults = self._world.now_s, host.disk.faults
        self._world.later(ARMED_S, lambda: faults.disarm(path))

        def end() -> None:
            if host.has_failed(directory):
                self.spans.append(Span(OFFLINE, f"{host.name}{directory}", began_s, self._world.now_s))
                self._world.note(f"offline: {host.name}{directory}")
                self._stop(host, directory)

        self._world.later(after_s, end)

    def _second_process(self, host: SimulatedHost, fault: ScheduledFault, _dice: random.Random) -> None:
        def end() -> None:
            if self._is_doubled(host.broker_id):
                self._injure(host)
                self._world.end_second(host.broker_id)

        self._injure(host)
        self._world.start_second(host.broker_id)
        self._world.later(fault.lasts_s, end)

    def _is_doubled(self, broker_id: int) -> bool:
        """Return whether two processes have this id. What the second one has is lost when it ends."""
        second = self._world.second_hosts.get(broker_id)
        return second is not None and second.is_running

    def _stop(self, host: SimulatedHost, directory: str) -> None:
        """Restart a broker, once it is not paused, if its log directory is still offline then."""
        if not host.is_paused:
            host.terminate()
        elif host.has_failed(directory):
            self._world.later(AGAIN_S, lambda: self._stop(host, directory))

    def _disk_full(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        disk = host.disk
        disk.leave_free(dice.choice((0, 1000, 60_000, 100_000)))
        self._world.later(fault.lasts_s, lambda: setattr(disk, "capacity_bytes", UNLIMITED_BYTES))

    def _bit_flip(self, host: SimulatedHost, _fault: ScheduledFault, dice: random.Random) -> None:
        """Flip one bit of a written file."""
        written = self._written(host)
        if written:
            path = dice.choice([*written])
            position = dice.randrange(written[path])
            self._injure(host, is_trusted=False)
            self._world.note(f"byte {position} of {path}")
            host.disk.flip(path, position, dice.randrange(8))

    def _lose(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        """Lose a closed segment, or what it has from some byte on, or one byte."""
        written, disk = self._written(host), host.disk
        path = dice.choice(_segments(written))
        position = dice.randrange(written[path])
        self._injure(host, is_trusted=False)
        self._world.note(f"byte {position} of {path}")
        match fault.kind:
            case FaultKind.FILE_MISSING:
                disk.lose(path)
            case FaultKind.FILE_SHORTENED:
                disk.shorten(path, position)
            case FaultKind.FILE_ZEROED:
                disk.zero(path, position, len(disk.content(path)) - position)
            case _:
                disk.faults.fail_reads(path, position, position + 1)

    def _lose_end(self, host: SimulatedHost, fault: ScheduledFault, dice: random.Random) -> None:
        """Kill a broker, and lose records at the end of one of its logs before it starts again."""
        self._injure(host, is_trusted=False)
        self._distrusted.add(host.broker_id)
        self._take_down(host, host.kill, fault.lasts_s)
        written, disk = self._written(host), host.disk
        path = dice.choice(_segments(written, are_last=True))
        position = dice.randrange(max(written[path] - END_BYTES, 0), written[path])
        self._world.note(f"byte {position} of {path}, which ends at {written[path]}")
        match dice.randrange(3):
            case 0:
                disk.shorten(path, position)
            case 1:
                disk.zero(path, position, len(disk.content(path)) - position)
            case _:
                disk.flip(path, position, dice.randrange(8))

    def _written(self, host: SimulatedHost) -> dict[str, int]:
        """Return the files of a host that can be repaired from other replicas, each with its length without zeros."""
        disk = host.disk
        written = {path: len(disk.content(path).rstrip(b"\0")) for path in disk.files()}
        return {path: length for path, length in written.items() if length and self._is_accounted_for(path)}

    def _is_accounted_for(self, path: str) -> bool:
        """Return whether a file has other replicas from which it can be repaired."""
        topics = {str(topic.id) for topic in self._world.image.topics_by_id.values() if topic.name != LOSSY_TOPIC}
        _, is_of_topic, rest = path.partition("/topics/")
        return not is_of_topic or rest.partition("/")[0] in topics

    def _wipe(self, host: SimulatedHost, fault: ScheduledFault, _dice: random.Random) -> None:
        self._injure(host)
        self._take_down(host, lambda: self._replace_disk(host), fault.lasts_s)

    def _clock_jump(self, host: SimulatedHost, _fault: ScheduledFault, dice: random.Random) -> None:
        host.clock_jump_s += dice.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)

    def _target(self, fault: ScheduledFault, dice: random.Random) -> SimulatedHost:
        world = self._world
        without_vote = world.plan.broker_ids[world.plan.voters :]
        if fault.kind is FaultKind.SECOND_PROCESS and without_vote and dice.random() < WITHOUT_VOTE_SHARE:
            # The second process of a voter cannot bind its address, and ends. This one registers.
            return world.hosts[dice.choice(without_vote)]
        if fault.kind is FaultKind.END_LOST and len(self._injuries) == 1:
            return world.hosts[next(iter(self._injuries))]
        anybody = world.hosts[dice.choice(world.plan.broker_ids)]
        match fault.aim:
            case TargetChoice.LEADER:
                return world.hosts.get(world.leader(dice.randrange(world.plan.partitions)), anybody)
            case TargetChoice.CONTROLLER:
                return world.hosts.get(world.controller(), anybody)
            case TargetChoice.TRANSACTIONS:
                return world.hosts.get(world.leader(dice.randrange(COORDINATORS), TRANSACTION_STATE), anybody)
            case TargetChoice.GROUPS:
                topic, partition = dice.choice((CONSUMER_OFFSETS, SHARE_GROUP_STATE)), dice.randrange(COORDINATORS)
                return world.hosts.get(world.leader(partition, topic), anybody)
            case TargetChoice.ANYBODY:
                return anybody
            case _:
                assert_never(fault.aim)

    def _may_strike(self, kind: FaultKind, host: SimulatedHost) -> bool:
        """Return whether a fault may strike: until all replicas are in sync again, only one disk may lose data."""
        costs_a_directory = kind is FaultKind.WRITE_ERROR and len(host.settings.log_dirs) > 1
        if costs_a_directory or kind in (
            FaultKind.SYNC_ERROR,
            FaultKind.BIT_FLIP,
            FaultKind.WIPE,
            FaultKind.SECOND_PROCESS,
            *LOSSES_OF_SEGMENTS,
        ):
            self._forget_healed()
            is_spared = self._world.tolerates_lost_disk() and host.is_running
            if kind not in LOSSES_OF_SEGMENTS:
                return is_spared and not self._injuries
            # Of a disk that may be damaged still, too: no other one is.
            is_spared = is_spared and self._injuries.keys() <= {host.broker_id}
            return is_spared and bool(_segments(self._written(host), are_last=kind is FaultKind.END_LOST))
        if kind is FaultKind.POWER_CUT:
            return host.broker_id not in self._distrusted
        return True

    def _has_injuries(self) -> bool:
        self._forget_healed()
        return bool(self._injuries)

    def _forget_healed(self) -> None:
        if self._world.is_redundant():
            now_s = self._world.now_s
            self._injuries = {
                broker_id: injury
                for broker_id, injury in self._injuries.items()
                if now_s - injury.since_s < (TRUSTED_S if injury.is_trusted else HURT_S) or self._is_doubled(broker_id)
            }

    def _injure(self, host: SimulatedHost, *, is_trusted: bool = True) -> None:
        self._injuries[host.broker_id] = _Injury(self._world.now_s, is_trusted)

    def _harm(self, host: SimulatedHost) -> Callable[[], None]:
        return host.kill if host.broker_id in self._distrusted else host.power_cut

    def _replace_disk(self, host: SimulatedHost) -> None:
        host.kill()
        host.insert_disk()
        self._distrusted.discard(host.broker_id)

    def _take_down(self, host: SimulatedHost, how: Callable[[], None], seconds: float) -> None:
        self._world.held.add(host.broker_id)
        how()
        self._world.later(seconds, lambda: self._world.start(host.broker_id))

    def _exited(self, host: SimulatedHost) -> None:
        """Cut the power or replace the disk of a host whose process ended, if a fault planned it."""
        dice = self._dying.pop(host.broker_id, None)
        if dice is not None and dice.random() < 0.5:
            self._harm(host)()
        dice = self._failing.pop(host.broker_id, None)
        if dice is not None:
            if dice.random() < 0.5:
                self._replace_disk(host)
            else:
                self._distrusted.add(host.broker_id)


def _place(host: SimulatedHost, dice: random.Random) -> tuple[str, str]:
    """Return one of the log directories, and the text of the paths in it that a fault strikes."""
    directory = dice.choice(host.settings.log_dirs)
    return directory, f"{directory}{dice.choice(('/', '/topics/'))}"


def _segments(paths: Iterable[str], *, are_last: bool = False) -> list[str]:
    """Return the closed segments of topics, or the last ones of their logs, each in its newest generation."""
    of_log: dict[str, dict[int, SegmentFile]] = {}
    for path in paths:
        file = segment_file(path)
        if file is not None and path.endswith(".log") and "/topics/" in path:
            of_base = of_log.setdefault(path.rpartition("/")[0], {})
            of_base[file.base_offset] = max(file, of_base.get(file.base_offset, file))
    return [
        segment_path(directory, *of_base[base])
        for directory, of_base in sorted(of_log.items())
        for base in (sorted(of_base)[-1:] if are_last else sorted(of_base)[:-1])
    ]
