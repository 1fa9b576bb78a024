"""Scenarios of a Raft quorum whose voters change: a crash at every step of a change, and random faults around many."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.quorum import SimulatedQuorum
from cordwood.chaos.sim.quorum_scenario import HELD_UP_S, READMITTED_S, QuorumFaultInjector
from cordwood.chaos.sim.strict import strictly
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import QuorumFailed
from cordwood.cluster.metadata.raft.machine import PROPOSAL_TIMEOUT_S
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.voter_changes import replaced_directory

RESTART_S = 0.05
SETTLED_S = 60.0
CHANGES_MIN = 2


@dataclass(frozen=True, slots=True)
class VoterStory:
    """A change of the voters, which a crash interrupts. Broker 1 leads at its beginning."""

    before: tuple[int, ...]
    added: int | None = None
    removed: int | None = None
    dead: int | None = None
    """A voter that is down all the time."""

    @property
    def after(self) -> tuple[int, ...]:
        return tuple(sorted({*self.before, *((self.added,) if self.added else ())} - {self.removed}))

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted({*self.before, *((self.added,) if self.added else ())}))


STORIES = {
    "1 to 2": VoterStory((1,), added=2),
    "2 to 3": VoterStory((1, 2), added=3),
    "3 to 4": VoterStory((1, 2, 3), added=4),
    "4 to 5": VoterStory((1, 2, 3, 4), added=5),
    "5 to 4": VoterStory((1, 2, 3, 4, 5), removed=5),
    "4 to 3": VoterStory((1, 2, 3, 4), removed=2),
    "3 to 2, without the leader": VoterStory((1, 2, 3), removed=1),
    "2 to 1": VoterStory((1, 2), removed=2),
    "2 to 1, without the leader": VoterStory((1, 2), removed=1),
    "a dead voter goes": VoterStory((1, 2, 3), removed=3, dead=3),
    "a voter comes while one is dead": VoterStory((1, 2, 3), added=4, dead=3),
}


class StepCounter:
    """Calls a function once, after a number of callbacks of the event loop."""

    def __init__(self, quorum: SimulatedQuorum, at: int, act: Callable[[], None]) -> None:
        self._quorum, self._at, self._act = quorum, at, act
        self.steps = 0
        quorum.loop.on_step = self._count

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self._at:
            self._act()

    def stop(self) -> None:
        self._quorum.loop.on_step = None


def run_voter_story(story: VoterStory, victims: tuple[int, ...], step: int, *, seed: int = 1, cut: bool = True) -> bool:
    """Crash the victims after `step` callbacks of the change, restart them, and check the outcome.

    Returns whether the change was still going on: a test goes on to the next step until False.
    """
    return run(strictly(_interrupted(story, victims, step, seed, cut)))


async def quorum_of(story: VoterStory, seed: int) -> SimulatedQuorum:
    """Return a quorum with the voters before the story, led by broker 1. All but broker 1 were added as voters."""
    quorum = SimulatedQuorum(seed=seed, voters=1).start()
    await quorum.formed()
    quorum.join(*(member for member in story.members if member != 1))
    await quorum.until(lambda: all(quorum.standing(member) is Standing.MEMBER for member in story.members))
    await quorum.formed()
    await quorum.register(*story.members)
    for voter in story.before[1:]:
        await quorum.add(1, voter)
    await quorum.put(1, "before")
    if story.dead is not None:
        quorum.kill(story.dead)
    return quorum


async def _interrupted(story: VoterStory, victims: tuple[int, ...], step: int, seed: int, cut: bool) -> bool:
    quorum = await quorum_of(story, seed)
    through = next(member for member in reversed(story.before) if member not in (story.removed, story.dead))
    acknowledged = ["before"]

    def crash() -> None:
        for victim in victims:
            if victim in quorum.quorums:
                (quorum.power_cut if cut else quorum.kill)(victim)
                quorum.loop.call_later(RESTART_S, quorum.start, victim)

    counter = StepCounter(quorum, step, crash)
    changing = quorum.loop.create_task(_change(quorum, story, through))
    putting = quorum.loop.create_task(_put(quorum, through, acknowledged))
    await quorum.until(lambda: changing.done() or counter.steps >= step, SETTLED_S)
    was_interrupted = counter.steps >= step
    counter.stop()
    await quorum.wait(2 * RESTART_S)
    await _settled(quorum, story)
    putting.cancel()
    await _check_outcome(quorum, story, acknowledged)
    return was_interrupted


async def _change(quorum: SimulatedQuorum, story: VoterStory, through: int) -> None:
    with contextlib.suppress(QuorumFailed, CommandRefused):
        if story.added is not None:
            await quorum.add(through, story.added)
        elif story.removed is not None:
            await quorum.remove(through, story.removed)


async def _put(quorum: SimulatedQuorum, through: int, acknowledged: list[str]) -> None:
    for number in range(3):
        if through not in quorum.quorums:
            return
        with contextlib.suppress(QuorumFailed):
            await quorum.put(through, f"meanwhile-{number}")
            acknowledged.append(f"meanwhile-{number}")


async def _settled(quorum: SimulatedQuorum, story: VoterStory) -> None:
    """Wait until the voters that run have one leader that commits, whichever side of the change they are on."""
    deadline = quorum.loop.time() + SETTLED_S
    while True:
        leader = await quorum.leader()
        try:
            await quorum.put(leader, f"settled-{quorum.loop.time()}")
            break
        except QuorumFailed:
            assert quorum.loop.time() < deadline, f"no leader commits: {story}"


async def _check_outcome(quorum: SimulatedQuorum, story: VoterStory, acknowledged: list[str]) -> None:
    """Check that the voters are those before or after the change, that a repetition completes it, and what is kept."""
    leader = await quorum.leader()
    assert quorum.voters(leader) in (story.before, story.after), f"voters {quorum.voters(leader)} after {story}"
    deadline = quorum.loop.time() + SETTLED_S
    while quorum.voters(leader := await quorum.leader()) != story.after:
        assert quorum.loop.time() < deadline, f"the change cannot be completed: {story}"
        with contextlib.suppress(QuorumFailed, CommandRefused):
            await (quorum.add(leader, story.added) if story.added else quorum.remove(leader, story.removed or 0))
    await quorum.put(await quorum.leader(story.after[0], *story.after[1:]), "after")
    running = [member for member in story.members if member != story.dead]
    await quorum.formed(*running)
    await quorum.until(lambda: all(quorum.voters(member) == story.after for member in running))
    for member in running:
        missing = {*acknowledged, "after"} - set(quorum.keys(member))
        assert not missing, f"acknowledged, and gone on broker {member}: {sorted(missing)}"
    assert quorum.failures == [], f"a voter has given up: {quorum.failures}"
    assert quorum.refusals == [], f"a broker was refused: {quorum.refusals}"


class VoterFaultInjector(QuorumFaultInjector):
    """Random faults as for fixed voters, and voters that are added and removed meanwhile."""

    def __init__(self, quorum: SimulatedQuorum, seed: int) -> None:
        super().__init__(quorum, seed)
        self.voters = sorted(quorum.members)
        self.changes = 0
        self._changing = random.Random(seed * 3671)
        self._changed_at = float("-inf")

    async def end(self) -> None:
        """As for fixed voters, once no fault is outstanding: of two voters, neither does without the other."""
        await self.quorum.wait(HELD_UP_S[1])
        await super().end()

    def do_harm(self) -> None:
        if self._changing.random() < 0.5:
            self._proposals.spawn(self.change())
        if self._changing.random() < 0.3:
            self._proposals.spawn(self.record_directories())
        super().do_harm()

    async def change(self) -> None:
        """Add a random learner or remove a random voter, through a random broker."""
        quorum = self.quorum
        are_all_members = {at for at in quorum.quorums if quorum.standing(at) is Standing.MEMBER} == set(quorum.members)
        if not quorum.quorums or (quorum.loop.time() < self._forgot_at + READMITTED_S and not are_all_members):
            # A voter that has lost its data counts again only after a while: fewer voters could be too few meanwhile.
            return
        through, member = self._changing.choice(sorted(quorum.quorums)), self._changing.choice(self.voters)
        is_voter = member in quorum.voters(through)
        self._changed_at = quorum.loop.time()
        with contextlib.suppress(QuorumFailed, CommandRefused):
            if not is_voter and member in quorum.quorums:
                await quorum.register(member)
            if through in quorum.quorums:
                await (quorum.remove if is_voter else quorum.add)(through, member)
                self.changes += 1

    async def record_directories(self) -> None:
        """Do as the active controller does: record the directory of a voter that came back with an empty disk."""
        leaders = [at for at, voter in self.quorum.quorums.items() if voter.is_leader]
        with contextlib.suppress(QuorumFailed, CommandRefused):
            for member in list(self.quorum.quorums):
                await self.quorum.register(member)
            for leader in leaders:
                voter = self.quorum.quorums.get(leader)
                if voter is not None and (update := replaced_directory(voter.image)) is not None:
                    await self.quorum.propose(leader, update)

    def may_wipe(self, broker: int) -> bool:
        """As for fixed voters, of the voters before and after a change that is not committed."""
        if self.quorum.loop.time() < self._changed_at + PROPOSAL_TIMEOUT_S or not super().may_wipe(broker):
            return False
        remember = {at for at in self.quorum.quorums if self.quorum.standing(at) is Standing.MEMBER} - {broker}
        sets = [self.quorum.voters(at) for at in self.quorum.quorums]
        return all(len(remember & set(voters)) > len(voters) // 2 for voters in sets)


def run_voters_scenario(seed: int) -> float:
    """Run faults and changes of the voters, then recovery. Everything acknowledged is in every image.

    Returns the simulated seconds. Raises ScenarioFailed with the first failure as its cause.
    """
    return run(strictly(_scenario(seed)))


async def _scenario(seed: int) -> float:
    rng = random.Random(seed)
    quorum = SimulatedQuorum(seed=seed, voters=1, snapshot_interval_bytes=rng.choice((600, 4_000, 1 << 20)))
    quorum.flush_s, quorum.tells_late = rng.choice(((0.0001, 0.002), (0.001, 0.05))), True
    quorum.start()
    await quorum.formed()
    members = rng.choice((4, 5, 6))
    quorum.join(*range(2, members + 1))
    await quorum.until(lambda: all(quorum.standing(member) is Standing.MEMBER for member in quorum.quorums))
    await quorum.formed()
    await quorum.register(*quorum.members)
    for voter in range(2, rng.choice((2, 3, 3, 4)) + 1):
        await quorum.add(1, voter)
    fault_injector = VoterFaultInjector(quorum, seed)
    await fault_injector.make()
    await fault_injector.end()
    while fault_injector.changes < CHANGES_MIN:
        await fault_injector.change()
    leader = await quorum.leader()
    await quorum.put(leader, "after")
    await quorum.formed()
    assert quorum.failures == [], f"a voter has given up: {quorum.failures}"
    images = {member: quorum.quorums[member].image for member in fault_injector.voters}
    for member, image in images.items():
        missing = {*fault_injector.acknowledged, "after"} - set(quorum.keys(member))
        assert not missing, f"acknowledged, and gone on broker {member}: {sorted(missing)}"
        back = set(fault_injector.taken_back) & set(quorum.keys(member))
        assert not back, f"taken back, and there again: {sorted(back)}"
        assert image.voters == images[leader].voters, f"broker {member} has other voters in its image than the leader"
        in_force = quorum.quorums[member]._log.voter_log.voters
        assert in_force == images[leader].voters, f"broker {member} has other voters in force than the leader"
    return quorum.loop.time()
