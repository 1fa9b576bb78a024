"""A simulated Raft quorum, with verbs for faults and continuous checks of safety."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.loop import run as run
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.chaos.sim.raft_rules import counted_in_vain, first_truncation, rows_of, truncated_without_reason
from cordwood.cluster.metadata import journal
from cordwood.cluster.metadata.commands import (
    AddVoter,
    AlterConfigs,
    BrokerId,
    Command,
    ConfigChange,
    RegisterBroker,
    RemoveVoter,
    ResourceType,
)
from cordwood.cluster.metadata.features import SUPPORTED
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumOptions
from cordwood.cluster.metadata.raft.entry import TAG_BYTES
from cordwood.cluster.metadata.raft.handshake import Peer, PeerRole
from cordwood.cluster.metadata.raft.messages import Contradiction, Propose, Row, Standing
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.observer import Observer
from cordwood.cluster.metadata.raft.voter import RaftQuorum
from cordwood.storage.errors import DamagedLog

DIRECTORY = "/data/metadata"
JOURNAL = f"{DIRECTORY}/{journal.NAME}"
PORT = 9093
LOOKS_PER_READING = 20
"""The number of checks per complete read of the journals."""
LOOKS_AFTER_A_CUT = 10
"""The number of checks, after a truncation, that read the journal: a sync in progress may end by then."""


def host(broker: int) -> str:
    return f"broker-{broker}"


class QuorumViolation(AssertionError):
    """The quorum violated a Raft invariant."""


class SimulatedQuorum:
    """Voters 1 to `voters`, each a process with its own disk. Time passes only inside awaited verbs.

    Further `members` keep the log as learners until they are added as voters.
    """

    def __init__(self, seed: int = 1, voters: int = 3, snapshot_interval_bytes: int = 1 << 20) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "a scenario runs in `run`"
        self.loop = loop
        self.rng = random.Random(seed)
        self.network = SimulatedNetwork(loop, random.Random(seed + 1))
        self.addresses = {BrokerId(voter): (host(voter), PORT) for voter in range(1, voters + 1)}
        self.members = dict(self.addresses)
        self.directories = {member: f"{host(member)}:1" for member in self.members}
        """The id of each member's directory: another one after its disk was lost."""
        self.disks: dict[int, SimulatedDisk] = {
            voter: SimulatedDisk(random.Random(seed * 100 + voter)) for voter in self.addresses
        }
        self.has_joined = False
        """Whether controller.quorum.bootstrap.servers is set, as it has to be once other voters are added."""
        self.snapshot_interval_bytes = snapshot_interval_bytes
        self.flush_s = (0.0001, 0.002)
        self.tells_late = False
        """Whether a sync covers only data written until some moment before its completion is reported."""
        self.run_beside: Callable[..., Any] = _call
        """The execution of a function that a voter runs in a thread."""
        self.processes: dict[int, Process] = {}
        self.quorums: dict[int, RaftQuorum] = {}
        self.observers: dict[int, Observer] = {}
        self.failures: list[tuple[int, QuorumFailed]] = []
        self.refusals: list[tuple[int, str]] = []
        self._leaders: dict[int, int] = {}
        self._final: dict[int, tuple[bytes, int]] = {}
        self._checked: dict[int, int] = {}
        self._foreign: set[int] = set()
        self._wiped: set[int] = set()
        self._confirmed: dict[int, int] = {}
        """By voter: the flushed end of its journal when its process ended."""
        self._votes: dict[int, tuple[int, int | None]] = {}
        self._rows: dict[int, tuple[Row, ...]] = {}
        self._cut_at: dict[int, int] = {}
        """By voter: the number of the check at which its log was last found truncated or changed."""
        self._wrong: list[str] = []
        self._looks = self._committed = 0

    def start(self, *brokers: int, **options: Any) -> "SimulatedQuorum":
        """Start these voters, or all that are not running."""
        for broker in brokers or [member for member in self.members if member not in self.quorums]:
            process = self.processes[broker] = Process(host(broker))
            self.disks[broker].on_sync = partial(self._check_replaced, broker)
            self.quorums[broker] = process.context().run(self._open, broker, options)
            self._check_remembered(broker)
            self._rows.pop(broker, None)
            self.quorums[broker].subscribe(partial(self._check_own_term, broker, self.quorums[broker]))
            self._spawn(process, self.quorums[broker].start())
            self._checked[broker] = self.quorums[broker].image.index
        return self

    def join(self, *brokers: int) -> "SimulatedQuorum":
        """Start further brokers, which controller.quorum.voters does not name, as learners with empty disks."""
        self.has_joined = True
        for broker in brokers:
            self.members[BrokerId(broker)] = (host(broker), PORT)
            self.directories[BrokerId(broker)] = f"{host(broker)}:1"
            self.disks[broker] = SimulatedDisk(random.Random(self.rng.random()))
        return self.start(*brokers)

    def observe(self, broker: int, **options: Any) -> Observer:
        process = self.processes[broker] = Process(host(broker))
        observer = self.observers[broker] = Observer(self._options(broker, options))
        self._spawn(process, observer.start())
        return observer

    def kill(self, *brokers: int) -> None:
        """Kill the processes. The page cache survives."""
        for broker in brokers:
            self.network.kill(self.processes[broker])
            if broker in self.disks:
                self.disks[broker].kill()
            self._went_down(broker)
            self.observers.pop(broker, None)

    def power_cut(self, *brokers: int, keep: float | None = None) -> None:
        """Cut the power of the machines. Their peers get no connection reset."""
        for broker in brokers:
            self.network.kill(self.processes[broker], silently=True)
            self.disks[broker].power_cut(keep)
            self._went_down(broker)

    def wipe(self, *brokers: int) -> None:
        """Kill the processes, and replace their disks with empty ones."""
        self.kill(*brokers)
        for broker in brokers:
            self.disks[broker] = SimulatedDisk(random.Random(self.rng.random()))
            name, _, count = self.directories[BrokerId(broker)].rpartition(":")
            self.directories[BrokerId(broker)] = f"{name}:{int(count) + 1}"
            self._confirmed.pop(broker, None)
            self._wiped.add(broker)

    def take_disk_of(self, broker: int, other: "SimulatedQuorum") -> None:
        """Restart a voter with the disk of another cluster's voter, and exclude it from the checks."""
        self.kill(broker)
        self.disks[broker] = other.disks[broker]
        self.disks[broker].kill()
        self._foreign.add(broker)
        self.start(broker)

    async def stop(self, *brokers: int) -> None:
        for broker in brokers:
            quorum = self.quorums.pop(broker)
            await self._in_process(broker, quorum.close())
            self.network.kill(self.processes[broker])

    def cut_off(self, broker: int) -> None:
        """Cut all links of a voter."""
        for other in self.members:
            if other != broker:
                self.network.cut(host(broker), host(other))

    def heal(self) -> None:
        self.network.heal()

    async def formed(self, *brokers: int) -> Image:
        """Wait until these brokers, or all, have every committed entry. Return the image of the first."""
        everyone = self._everyone
        chosen = brokers or tuple(everyone)
        await asyncio.wait_for(
            asyncio.gather(*(self._in_process(broker, everyone[broker].formed()) for broker in chosen)), 60
        )
        return everyone[chosen[0]].image

    async def put(self, broker: int, *keys: str) -> Image:
        """Propose configs through this broker. The keys are visible in the image."""
        image = Image()
        for key in keys:
            image = await self.propose(broker, setting(key))
        return image

    async def propose(self, broker: int, command: Command) -> Image:
        """Propose a command through this broker. Raises as Quorum.propose does, and QuorumFailed if it does not run."""
        proposing = self._everyone.get(broker)
        if proposing is None:
            raise QuorumFailed(f"broker {broker} does not run")
        found: Image = await self._in_process(broker, proposing.propose(command))
        return found

    async def register(self, *brokers: int) -> None:
        """Register brokers with the directories that they have now."""
        for broker in brokers:
            incarnation = UUID(int=self.rng.getrandbits(128))
            directories = (self.directories[BrokerId(broker)],)
            command = RegisterBroker(BrokerId(broker), incarnation, (), None, directories, levels=SUPPORTED)
            await self.propose(broker, command)

    async def add(self, through: int, broker: int) -> Image:
        """Add a voter, with the directory that it has now."""
        directory_id = self.directories[BrokerId(broker)]
        return await self.propose(through, AddVoter(BrokerId(broker), directory_id, *self.members[BrokerId(broker)]))

    async def remove(self, through: int, broker: int) -> Image:
        """Remove a voter, with the directory that the proposing broker knows."""
        proposing = self._everyone.get(through)
        known = None if proposing is None else proposing.image.voters.get(BrokerId(broker))
        directory_id = self.directories[BrokerId(broker)] if known is None else known.directory_id
        return await self.propose(through, RemoveVoter(BrokerId(broker), directory_id))

    def voters(self, broker: int) -> tuple[int, ...]:
        """Return the voters that are in force for this broker."""
        return self.quorums[broker]._node.voters

    async def take_back(self, broker: int, key: str) -> Image:
        """Propose the removal of a key through this broker."""
        return await self.propose(broker, setting(key, None))

    def deliver_again(self, rng: random.Random) -> None:
        """Deliver a committed entry to the leader again, as from another voter's connection."""
        leaders = [at for at, voter in self.quorums.items() if voter.is_leader]
        if leaders and self._final:
            entry, _ = self._final[rng.choice(sorted(self._final))]
            sender = rng.choice([member for member in self.members if member != leaders[0]])
            if len(entry) >= TAG_BYTES:
                take = self.quorums[leaders[0]].received
                self.processes[leaders[0]].context().run(take, Peer(sender, PeerRole.VOTER), Propose(entry))

    @property
    def _everyone(self) -> dict[int, RaftQuorum | Observer]:
        return {**self.quorums, **self.observers}

    def keys(self, broker: int) -> list[str]:
        """Return the keys in commit order, by this broker's image."""
        return list(self._everyone[broker].image.configs_of_all_brokers)

    async def leader(self, *among: int) -> int:
        """Wait for an active controller, among these brokers if any are given. Return the one with the highest term."""
        await self.until(lambda: any(self.quorums[at].is_leader for at in among or self.quorums if at in self.quorums))
        leaders = [at for at in among or self.quorums if at in self.quorums and self.quorums[at].is_leader]
        return max(leaders, key=lambda at: self.quorums[at].term)

    async def followers(self) -> list[int]:
        leader = await self.leader()
        return [voter for voter in self.quorums if voter != leader]

    def standing(self, broker: int) -> Standing:
        return self.quorums[broker]._standings.own

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait for a condition. Raises Violation after `seconds`."""
        deadline = self.loop.time() + seconds
        while not condition():
            if self.loop.time() > deadline:
                raise QuorumViolation(f"it did not come to that within {seconds} simulated seconds")
            await self.wait(0.01)

    async def wait(self, seconds: float) -> None:
        """Let time pass, with a check of all invariants every 10 ms."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(min(0.01, end - self.loop.time()))
            self.look()

    def look(self) -> None:
        """Check all invariants on the current state. Raises Violation."""
        for broker, quorum in self.quorums.items():
            node = getattr(quorum, "_node", None)
            if node is None or broker in self._foreign:
                continue
            if node.is_leader and self._leaders.setdefault(node.term, broker) != broker:
                raise QuorumViolation(f"brokers {broker} and {self._leaders[node.term]} both lead term {node.term}")
            known = max(self._checked[broker], node.log.base_index)
            for row in node.log.between(known, node.commit_index):
                self._agree(broker, row)
            if node.is_leader and node.commit_index > self._committed:
                self._check_majority(node)
            self._checked[broker] = max(known, node.commit_index)
            self._check_truncation(broker, node)
            self._check_voters(broker, node)
            self._check_kept(broker, node)
            self._check_wiped(broker)
        self._check_counted()
        if self._wrong:
            raise QuorumViolation(self._wrong[0])

    def _went_down(self, broker: int) -> None:
        self._votes.pop(broker, None)
        quorum = self.quorums.pop(broker, None)
        if quorum is not None:
            self._confirmed[broker] = quorum._log.flushed_end

    def _check_remembered(self, broker: int) -> None:
        """Check that a restarted member has every entry it confirmed: a voter that lost one is an amnesiac (ADR 11)."""
        has, had = self.quorums[broker]._log.end, self._confirmed.get(broker, 0)
        if has < had and self.standing(broker) is Standing.MEMBER and broker not in self._foreign:
            raise QuorumViolation(f"broker {broker} had confirmed entry {had}, has {has}, and goes on as a member")

    def _check_wiped(self, broker: int) -> None:
        """Check that a voter with a new disk becomes an amnesiac once it has heard of the existing cluster."""
        standing = self.standing(broker)
        if broker not in self._wiped or standing is Standing.EMPTY:
            return
        self._wiped.discard(broker)
        others = [self.standing(other) for other in self.quorums if other != broker]
        if standing is not Standing.AMNESIAC and Standing.MEMBER in others:
            raise QuorumViolation(f"broker {broker} has lost its disk, and stands as {standing.name}")

    def _check_majority(self, leader: RaftNode) -> None:
        """Check that a committed entry is flushed on a majority that counts. Voters that do not run may have it.

        The voters may have changed since the commit, once.
        """
        index = self._committed = leader.commit_index
        sets = [set(leader.voters), set(leader.log.voter_log.before or self.addresses)]
        lacking = {
            at
            for at, quorum in self.quorums.items()
            if quorum._log.flushed_end < index or self.standing(at) is Standing.AMNESIAC
        }
        if all(len(lacking & voters) > (len(voters) - 1) // 2 for voters in sets):
            raise QuorumViolation(f"entry {index} is committed, and on brokers {lacking} it is not, or does not count")

    def _check_voters(self, broker: int, node: RaftNode) -> None:
        """Check that each set of voters differs from the one before by one voter, so that their majorities overlap."""
        for before, after in pairwise(set(voters or self.addresses) for voters in node.log.voter_log.sets()):
            if len(before ^ after) > 1 or not after:
                raise QuorumViolation(f"broker {broker} has voters {sorted(after)} in its log after {sorted(before)}")

    def _check_own_term(self, broker: int, quorum: RaftQuorum, _old: Image, new: Image) -> None:
        """Check that a leader commits entries of earlier terms only with one of its own (Raft, 5.4.2)."""
        node, term = getattr(quorum, "_node", None), quorum._machine.term
        if node is not None and node.is_leader and node.others and term != node.term:
            self._wrong.append(f"broker {broker} leads term {node.term}, and has committed {new.index} of term {term}")

    def _check_truncation(self, broker: int, node: RaftNode) -> None:
        """Check that a log is truncated only where it differs from its leader's."""
        before, rows = self._rows.get(broker, ()), rows_of(node.log)
        self._rows[broker] = rows
        if (cut := first_truncation(before, rows)) is not None:
            self._cut_at[broker] = self._looks
            if sentence := truncated_without_reason(cut):
                raise QuorumViolation(f"broker {broker}: {sentence}")

    def _check_counted(self) -> None:
        """Check that follower members have what their leader counts, and confirm only the leader's entries."""
        nodes = {
            broker: node
            for broker, quorum in self.quorums.items()
            if broker not in self._foreign and (node := getattr(quorum, "_node", None)) is not None
        }
        for leader in [node for node in nodes.values() if node.is_leader]:
            for broker, follower in nodes.items():
                if follower is not leader and self.standing(broker) is Standing.MEMBER:
                    self._wrong.extend(counted_in_vain(leader, BrokerId(broker), follower))

    def _check_kept(self, broker: int, node: RaftNode) -> None:
        """Check that a voter's vote and confirmed entries survive any power cut."""
        vote = node.log.getCurrentTerm(), node.log.getVotedForNodeId()
        if self.standing(broker) is Standing.AMNESIAC and vote[1] is not None:
            raise QuorumViolation(f"broker {broker} has forgotten what it promised, and votes {vote}")
        self._looks += 1
        is_cut = self._looks - self._cut_at.get(broker, -LOOKS_AFTER_A_CUT) < LOOKS_AFTER_A_CUT * len(self.quorums)
        if self._votes.get(broker) == vote and self._looks % LOOKS_PER_READING and not is_cut:
            return
        self._votes[broker] = vote
        try:
            kept = journal.parse(JOURNAL, self.disks[broker].durable_content(JOURNAL))
        except DamagedLog:
            # The journal has flipped bits; the voter runs on its state in memory.
            return
        if (kept.term, kept.vote) != (vote[0], None if vote[1] is None else str(vote[1])):
            raise QuorumViolation(f"broker {broker} has voted {vote}, and may forget it")
        end = kept.entries[-1].index if kept.entries else node.log.base_index
        if end < node.log.flushed_end:
            raise QuorumViolation(
                f"broker {broker} has confirmed entry {node.log.flushed_end}, and may lose entries after {end}"
            )
        at = node.log.flushed_end - kept.entries[0].index if kept.entries else -1
        if at >= 0 and kept.entries[at].term != node.log.term_at(node.log.flushed_end):
            raise QuorumViolation(
                f"broker {broker} has confirmed entry {node.log.flushed_end}, and may have another there"
            )

    def _check_replaced(self, broker: int, path: str) -> None:
        """Check, after a directory sync, that a replaced journal is durable and has the promised term."""
        promised = self._votes.get(broker)
        if path != DIRECTORY:
            return
        disk = self.disks[broker]
        if disk.exists(JOURNAL) and not disk.is_durable(JOURNAL, 1):
            raise QuorumViolation(f"broker {broker} has put a journal in the place of another, and may lose both")
        if promised is None:
            return
        with contextlib.suppress(DamagedLog):
            kept = journal.parse(JOURNAL, self.disks[broker].durable_content(JOURNAL))
            if kept.term < promised[0]:
                raise QuorumViolation(
                    f"broker {broker} was in term {promised[0]}, and may come back in term {kept.term}"
                )

    def _agree(self, broker: int, row: Row) -> None:
        command, index, term = row
        if self._final.setdefault(index, (command, term)) != (command, term):
            raise QuorumViolation(f"entry {index} of broker {broker} is not what was committed there")

    def _open(self, broker: int, options: dict[str, Any]) -> RaftQuorum:
        return RaftQuorum.open(self.disks[broker], DIRECTORY, self._options(broker, options))

    def _rejected(self, broker: int, reason: str) -> None:
        if reason.startswith(Contradiction.SAYS):
            self.failures.append((broker, QuorumFailed(reason)))

    def _options(self, broker: int, options: dict[str, Any]) -> QuorumOptions:
        return QuorumOptions(
            node_id=BrokerId(broker),
            rng=random.Random(self.rng.random()),
            on_failure=lambda failure: self.failures.append((broker, failure)),
            on_refused=lambda reason: self.refusals.append((broker, reason)),
            on_rejected_peer=lambda _, reason: self._rejected(broker, reason),
            voters={} if broker in self.members.keys() - self.addresses.keys() else self.addresses,
            bootstrap=tuple(self.members.values()) if self.has_joined else (),
            may_found=not self.has_joined,
            bind=(host(broker), PORT),
            snapshot_interval_bytes=self.snapshot_interval_bytes,
            **{"run_blocking": self._run_blocking, **options},
        )

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        takes_s, share = self.rng.uniform(*self.flush_s), self.rng.random() if self.tells_late else 1.0
        await asyncio.sleep(takes_s * share)
        done = self.run_beside(function, *arguments)
        if self.tells_late:
            await asyncio.sleep(takes_s * (1 - share))
        return done

    def _spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(work, context=process.context())

    async def _in_process(self, broker: int, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the broker's process and wait for its result; forever, if the process dies."""
        answer: asyncio.Future[Any] = self.loop.create_future()

        def answered(task: asyncio.Task[Any]) -> None:
            if answer.done():
                return
            if task.cancelled():
                answer.cancel()
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        self._spawn(self.processes[broker], work).add_done_callback(answered)
        return await answer


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def setting(key: str, value: str | None = "1") -> AlterConfigs:
    """Return a command that sets a config from no value to `value`, or removes one whose value is "1"."""
    expected = "1" if value is None else None
    return AlterConfigs(ResourceType.BROKER, "", (ConfigChange(key, expected, value),))


async def formed(**options: Any) -> SimulatedQuorum:
    """Return a quorum that has formed."""
    quorum = SimulatedQuorum(**options).start()
    await quorum.formed()
    return quorum
