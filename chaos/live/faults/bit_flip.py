"""Silent damage to one broker's files, named by `cordwood log verify` and repaired from the other replicas."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from cordwood.chaos.live import replica_logs
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.damage import KINDS, WHILE_RUNNING, choose
from cordwood.chaos.live.faults.fault import AT_ONCE_S, NOTHING_TWICE, Fault, Form, RoundOptions
from cordwood.chaos.live.figures import Figures, ValueLimit
from cordwood.chaos.live.plan import TargetRole
from cordwood.chaos.live.process import run_cordwood, wait_for
from cordwood.cluster.broker.verify import verify
from cordwood.storage.errors import DamagedLog
from cordwood.storage.real_disk import RealDisk

REPAIRED_S, UNNAMED = "repaired_s", "damaged_files_that_log_verify_did_not_name"
REPAIRED_S_MAX = 60.0
LOOKED_AT_S = 0.5
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "4096",
    # A pass over all sealed segments takes far less than the time that a repair may take.
    "log.scrub.bytes.per.second": str(64 << 20),
}


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A damaged file of a log directory, and what its repair has to restore."""

    path: Path
    before: bytes
    committed: Mapping[replica_logs.Replica, int]
    """The smallest log end offset of the other brokers' replicas, for each partition that the victim has."""
    is_named: bool
    """Whether `log verify` named the file. It is not run beside a running broker."""
    is_running: bool


@dataclass(slots=True)
class BitFlip(Fault):
    """A file damaged or removed while the broker is down, or a sealed segment while the broker runs."""

    cluster: LocalCluster
    kinds: Sequence[str] = tuple(KINDS)
    damaged: DamagedFile | None = None
    """The file of the last strike; None where there was no such file yet."""
    name: ClassVar[str] = "bit-flip"
    is_alone: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(ValueLimit(REPAIRED_S, REPAIRED_S_MAX), ValueLimit(UNNAMED, 0), NOTHING_TWICE),
        hold_s=AT_ONCE_S,
        segment_bytes=256 << 10,
        # Segments that are sealed, and so small that the background scrubber reads many.
        preloaded_segment_bytes=16 << 20,
    )

    def forms(self) -> Mapping[str, Form]:
        return {kind: Form(replace(self, kinds=(kind,)), TargetRole.ANYONE) for kind in self.kinds}

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        [victim] = victims
        broker, kind = self.cluster.brokers[victim], rng.choice(self.kinds)
        is_running = kind.endswith(WHILE_RUNNING)
        if not is_running:
            rng.choice((broker.kill, broker.stop))()
        harms = choose(broker.data, kind, rng)
        self.damaged = None
        if harms:
            path = harms[0].path
            committed, before = self._committed(victim), (broker.data / path).read_bytes()
            for harm in harms:
                harm.apply(broker.data)
            is_named = is_running or _is_named(broker.data, path)
            self.damaged = DamagedFile(path, before, committed, is_named, is_running)
        return f"{kind}: {', '.join(map(str, harms)) or 'there is none yet'}"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victim for victim in victims if not self.cluster.brokers[victim].is_running)

    def settle(self, victims: Sequence[int], figures: Figures, /) -> None:
        """Wait until the file is repaired, or for twice as long as a repair may take."""
        damaged = self.damaged
        if damaged is None:
            return
        [victim] = victims
        began = time.monotonic()
        wait_for(lambda: self._is_repaired(victim, damaged), 2 * REPAIRED_S_MAX)
        figures.add(REPAIRED_S, time.monotonic() - began)
        figures.add(UNNAMED, not damaged.is_named)

    def _committed(self, victim: int) -> dict[replica_logs.Replica, int]:
        data = self.cluster.data
        return {
            replica: min(replica_logs.end_offset(data[id_], replica) for id_ in self._others(victim, replica))
            for replica in replica_logs.replicas_in(data[victim])
        }

    def _others(self, victim: int, replica: replica_logs.Replica) -> list[int]:
        """Return the other brokers that have a replica of this partition."""
        data = self.cluster.data
        return [id_ for id_ in data if id_ != victim and replica in replica_logs.replicas_in(data[id_])]

    def _is_repaired(self, victim: int, damaged: DamagedFile) -> bool:
        """Return whether the file is sound, replaced or removed, and the victim's replica is the same as another's.

        A broker that runs has to restore its closed segment byte by byte, unless its topic is compacted.
        """
        time.sleep(LOOKED_AT_S)
        data, path = self.cluster.data, damaged.path
        file = data[victim] / path
        try:
            if not replica_logs.is_replaced(file):
                if damaged.is_running and file.read_bytes().rstrip(b"\0") != damaged.before.rstrip(b"\0"):
                    return False
                if file.exists() and list(verify(RealDisk(), str(file))):
                    return False
            if path.parts[0] != replica_logs.TOPICS:
                return True
            replica = path.parts[1], path.parts[2]
            logs = {id_: data[id_] for id_ in (victim, self._others(victim, replica)[0])}
            return not list(replica_logs.differences(logs, replica, damaged.committed[replica]))
        except (OSError, DamagedLog):
            # The broker replaced or removed the file meanwhile.
            return False


def _is_named(data: Path, path: Path) -> bool:
    verified = run_cordwood("log", "verify", str(data))
    return verified.returncode == 1 and str(path) in verified.stdout
