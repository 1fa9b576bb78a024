"""Random broker and controller faults: no committed record is lost, no broker is fenced early, and service resumes.

Each voter's controller hears the heartbeats that reach it and decides, and some of its commands are never applied. A
model of the logs holds each replica's log end and the high watermark.
"""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from metadata_scenario import MetadataScenario

from cordwood.cluster.metadata.commands import Command, Election, FenceBroker
from cordwood.cluster.metadata.controller import Controller, ControllerRules
from cordwood.cluster.metadata.elections import commit_size
from cordwood.cluster.metadata.features import NEWEST_LEVEL
from cordwood.cluster.metadata.image import NO_LEADER, CommandRefused
from cordwood.cluster.metadata.quorum import Heartbeat

BROKERS = (1, 2, 3, 4)
REPLICAS = (1, 2, 3)
VOTERS = 3
SESSION_S = 1.0
TICK_S = 1 / 8

some_brokers = st.sets(st.sampled_from(BROKERS))
a_broker = st.sampled_from(BROKERS)
a_voter = st.integers(0, VOTERS - 1)


class ClusterStory(RuleBasedStateMachine):
    """One partition in a cluster of four brokers, three of which hold it at first."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = MetadataScenario(len(BROKERS))
        self.controllers = [Controller(ControllerRules(SESSION_S, rebalance_interval_s=5)) for _ in range(VOTERS)]
        self.now_s = 100.0
        self.active = 0
        self.wants_shutdown: set[int] = set()
        self.log_end = dict.fromkeys(BROKERS, 0)
        self.committed = 0
        self.disks = 0
        self.has_lost_disks = False
        self.heard_at_s: dict[tuple[int, int], float] = {}

    @initialize(min_isr=st.integers(1, 3), is_new=st.booleans())
    def begin(self, min_isr: int, is_new: bool) -> None:
        if is_new:
            self.upgrade()
        self.cluster.create(*REPLICAS, min_isr=min_isr)
        self.seen = self.cluster.partition
        self.pass_time(1, set(BROKERS), set(range(VOTERS)))
        self.take_over(0)

    @rule(ticks=st.integers(1, 12), beating=some_brokers, listening=st.sets(a_voter))
    def pass_time(self, ticks: int, beating: set[int], listening: set[int]) -> None:
        """Advance the time. Voters that do not listen are partitioned or stalled."""
        for _ in range(ticks):
            self.now_s += TICK_S
            for voter in listening:
                for broker in beating:
                    self.controllers[voter].heard(self.heartbeat(broker), self.cluster.image, self.now_s)
                    self.heard_at_s[voter, broker] = self.now_s
                self.controllers[voter].look(self.cluster.image, self.now_s)

    @rule(voter=a_voter)
    def take_over(self, voter: int) -> None:
        self.active = voter
        self.controllers[voter].took_over(self.cluster.image, self.now_s)

    @rule(voter=a_voter, applied=st.lists(st.booleans(), max_size=4))
    def decide(self, voter: int, applied: list[bool]) -> None:
        """Have a voter decide, even a deposed one. Each of its commands may or may not be applied."""
        commands = self.controllers[voter].decide(self.cluster.image, self.now_s)
        for command, is_applied in zip(commands, applied + [True] * len(commands), strict=False):
            self.check_that_it_is_deserved(command, voter)
            if is_applied:
                self.attempt(command)

    @rule(broker=a_broker)
    def restart(self, broker: int) -> None:
        self.wants_shutdown.discard(broker)
        self.cluster.start(broker, self.disks_of(broker))

    @rule(broker=a_broker)
    def lose_disk(self, broker: int) -> None:
        self.log_end[broker] = 0
        self.disks += 1
        self.has_lost_disks = True
        self.wants_shutdown.discard(broker)
        self.cluster.start(broker, (str(UUID(int=100 + self.disks)),))

    @rule(broker=a_broker)
    def want_shutdown(self, broker: int) -> None:
        self.wants_shutdown.add(broker)

    @rule(broker=a_broker)
    def begin_shutdown(self, broker: int) -> None:
        self.wants_shutdown.add(broker)
        self.cluster.stop(broker)

    @precondition(lambda self: self.is_led)
    @rule()
    def produce(self) -> None:
        """Append a record on the leader, and commit it if the ISR is large enough."""
        partition = self.cluster.partition
        self.log_end[partition.leader] += 1
        if len(partition.isr) >= self.commit_size:
            end = self.log_end[partition.leader]
            self.log_end |= dict.fromkeys(map(int, partition.isr), end)
            self.committed = end

    @precondition(lambda self: self.is_led)
    @rule(follower=a_broker)
    def catch_up(self, follower: int) -> None:
        """Have a follower fetch the leader's whole log and be proposed for the ISR. A fenced follower is refused."""
        partition = self.cluster.partition
        if follower in partition.replicas:
            self.log_end[follower] = self.log_end[partition.leader]
            self.cluster.in_sync(*partition.isr, follower)
            self.commit_what_all_have()

    @precondition(lambda self: self.is_led)
    @rule(kept=some_brokers)
    def shrink(self, kept: set[int]) -> None:
        partition = self.cluster.partition
        self.cluster.in_sync(*(member for member in partition.isr if member in kept or member == partition.leader))
        self.commit_what_all_have()

    @rule(replicas=st.lists(a_broker, unique=True, min_size=1, max_size=3))
    def move(self, replicas: list[int]) -> None:
        try:
            self.cluster.move(*replicas)
        except CommandRefused:
            return

    @rule()
    def take_back(self) -> None:
        try:
            self.cluster.take_back()
        except CommandRefused:
            return

    @rule(min_isr=st.integers(1, 3))
    def set_min_isr(self, min_isr: int) -> None:
        self.cluster.set_min_isr(min_isr)
        self.commit_what_all_have()

    @precondition(lambda self: self.cluster.image.metadata_version < NEWEST_LEVEL)
    @rule()
    def finalize(self) -> None:
        """Finalize the newest metadata.version, in the middle of whatever goes on."""
        self.upgrade()
        self.commit_what_all_have()

    def upgrade(self) -> None:
        self.cluster.level(NEWEST_LEVEL)

    @rule()
    def elect_preferred(self) -> None:
        self.cluster.elect(Election.PREFERRED)

    @rule(candidate=st.none() | a_broker)
    def elect_unclean(self, candidate: int | None) -> None:
        """Run an unclean election, which may lose records."""
        before = self.cluster.partition
        after = self.cluster.elect(Election.UNCLEAN, candidate).partition
        if after is not before:
            self.committed = min(self.committed, self.log_end[after.leader])

    @rule()
    def heal(self) -> None:
        """End all faults: within two sessions all brokers are unfenced, and an eligible replica leads."""
        for broker in self.wants_shutdown:
            self.cluster.start(broker, self.disks_of(broker))
        self.wants_shutdown.clear()
        for broker in self.cluster.image.brokers.values():
            if broker.is_shutting_down:
                self.cluster.start(broker.id, broker.log_dirs)
        for _ in range(round(2 * SESSION_S / TICK_S)):
            self.pass_time(1, set(BROKERS), set(range(VOTERS)))
            self.decide(self.active, [])
        assert all(broker.is_alive for broker in self.cluster.image.brokers.values())
        partition = self.cluster.partition
        assert partition.leader != NO_LEADER or not (partition.isr or partition.elr)

    @property
    def is_led(self) -> bool:
        return self.cluster.partition.leader != NO_LEADER

    @property
    def min_isr(self) -> int:
        topic = next(iter(self.cluster.image.topics_by_id.values()))
        return self.cluster.image.min_isr(topic)

    @property
    def commit_size(self) -> int:
        """The size of the ISR that the leader asks for."""
        partition = self.cluster.partition
        level = self.cluster.image.metadata_version
        return min(commit_size(partition, self.min_isr, level), len(partition.replicas))

    def commit_what_all_have(self) -> None:
        """Advance the leader's high watermark as far as it may."""
        partition = self.cluster.partition
        if partition.leader != NO_LEADER and len(partition.isr) >= self.commit_size:
            self.committed = max(self.committed, min(self.log_end[member] for member in partition.isr))

    def heartbeat(self, broker: int) -> Heartbeat:
        known, wants = self.cluster.broker(broker), broker in self.wants_shutdown
        return Heartbeat(known.id, known.incarnation, known.epoch, self.cluster.image.index, wants)

    def disks_of(self, broker: int) -> tuple[str, ...]:
        return self.cluster.broker(broker).log_dirs

    def attempt(self, command: Command) -> None:
        try:
            self.cluster.apply(command)
        except CommandRefused:
            return

    def check_that_it_is_deserved(self, command: Command, voter: int) -> None:
        if isinstance(command, FenceBroker):
            silent_s = self.now_s - self.heard_at_s.get((voter, command.broker_id), 0.0)
            assert silent_s >= SESSION_S, "no broker with a heartbeat within its session is fenced"

    @invariant()
    def the_metadata_is_sound(self) -> None:
        now, before = self.cluster.partition, self.seen
        self.seen = now
        assert now.leader_epoch >= before.leader_epoch
        assert now is before or now.partition_epoch > before.partition_epoch
        assert now.leader == before.leader or now.leader_epoch > before.leader_epoch
        assert {*now.isr, *now.elr, *now.adding, *now.removing} <= set(now.replicas)
        assert not set(now.isr) & set(now.elr)
        assert not set(now.adding) & set(now.removing)
        assert len(set(now.replicas)) == len(now.replicas) > 0
        assert not now.elr or len(now.isr) < self.commit_size
        assert now.isr or self.has_lost_disks, "only a lost disk empties the ISR"

    @invariant()
    def the_leader_is_in_sync_and_alive(self) -> None:
        partition, image = self.cluster.partition, self.cluster.image
        if partition.leader == NO_LEADER:
            assert not any(map(image.is_alive, (*partition.isr, *partition.elr))), "somebody could lead"
            return
        assert partition.leader in partition.isr
        assert image.is_in_service(partition.leader), "a fenced broker leads nothing"
        others = [member for member in partition.isr if member != partition.leader]
        assert all(map(image.is_alive, others)), "replicas in the ISR are alive, except the last one"
        assert image.is_alive(partition.leader) or not others, "who is about to stop leads only for want of another"

    @invariant()
    def every_eligible_leader_has_all_that_is_committed(self) -> None:
        partition = self.cluster.partition
        for member in (*partition.isr, *partition.elr):
            assert self.log_end[member] >= self.committed, f"broker {member} lacks committed records"


ClusterStory.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestAnyClusterStory = ClusterStory.TestCase
