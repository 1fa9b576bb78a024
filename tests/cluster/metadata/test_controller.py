"""The controller's decisions: fencing, unfencing, controlled shutdown, preferred leaders, and its own pauses."""

from dataclasses import replace

import pytest
from metadata_scenario import TOPIC, MetadataScenario

from cordwood.cluster.metadata.commands import (
    AlterPartitions,
    BeginControlledShutdown,
    BrokerId,
    Command,
    Election,
    ElectLeaders,
    FenceBroker,
    IsrChange,
    UnfenceBroker,
)
from cordwood.cluster.metadata.controller import ELECTIONS_MAX, Controller, ControllerRules
from cordwood.cluster.metadata.quorum import Heartbeat

SESSION_S = 1.0
TICK_S = 1 / 8
RULES = ControllerRules(SESSION_S, rebalance_interval_s=60)


class Voter:
    """A controller of a cluster whose brokers send heartbeats in every tick, except for the `silent` ones."""

    def __init__(self, cluster: MetadataScenario, rules: ControllerRules = RULES, silent: tuple[int, ...] = ()) -> None:
        self.cluster, self.controller = cluster, Controller(rules)
        self.now_s = 100.0
        self.silent = set(silent)
        self.stopping: set[int] = set()
        self.controller.look(cluster.image, self.now_s)
        self.tick()
        self.take_over()

    def take_over(self) -> None:
        self.controller.took_over(self.cluster.image, self.now_s)

    def heartbeat(self, broker: int) -> Heartbeat:
        known = self.cluster.broker(broker)
        index = self.cluster.image.index
        return Heartbeat(known.id, known.incarnation, known.epoch, index, broker in self.stopping)

    def hear(self, heartbeat: Heartbeat) -> bool:
        return self.controller.heard(heartbeat, self.cluster.image, self.now_s)

    def tick(self) -> None:
        """Advance the time by one tick, with heartbeats of all brokers that are not silent."""
        self.now_s += TICK_S
        for broker in self.cluster.image.brokers:
            if broker not in self.silent:
                self.hear(self.heartbeat(broker))
        self.controller.look(self.cluster.image, self.now_s)

    def decide(self) -> list[Command]:
        """Decide, apply the commands and return them."""
        commands = self.controller.decide(self.cluster.image, self.now_s)
        self.cluster.apply(*commands)
        return commands

    def until(self, seconds: float) -> list[Command]:
        """Return everything decided while `seconds` pass."""
        decided = self.decide()
        for _ in range(round(seconds / TICK_S)):
            self.tick()
            decided += self.decide()
        return decided


@pytest.fixture
def voter() -> Voter:
    return Voter(MetadataScenario().create(1, 2, 3))


def fence(voter: Voter, broker: int) -> FenceBroker:
    return FenceBroker(BrokerId(broker), voter.cluster.broker(broker).epoch)


def unfence(voter: Voter, broker: int) -> UnfenceBroker:
    return UnfenceBroker(BrokerId(broker), voter.cluster.broker(broker).epoch)


def test_nothing_is_decided_while_all_is_well(voter: Voter) -> None:
    assert voter.until(10) == []


def test_a_broker_is_fenced_when_it_has_been_silent_for_a_session_and_not_before(voter: Voter) -> None:
    voter.silent = {1}
    assert voter.until(SESSION_S - TICK_S) == []
    assert voter.until(2 * TICK_S) == [fence(voter, 1)]
    assert voter.cluster.partition.leader == 2
    assert voter.until(10) == []


def test_what_a_former_incarnation_says_counts_for_nothing(voter: Voter) -> None:
    former = replace(voter.heartbeat(2), applied_index=1 << 20)
    voter.cluster.restart(2)
    voter.silent = {2}
    voter.cluster.fence(2)
    for _ in range(3):
        voter.tick()
        voter.hear(former)
        assert voter.decide() == [], "it is not unfenced for that"
    voter.silent = set()
    voter.tick()
    assert voter.decide() == [unfence(voter, 2)]


def test_what_a_broker_said_before_it_registered_again_counts_for_nothing(voter: Voter) -> None:
    now = voter.heartbeat(2)
    voter.silent = {2}
    voter.cluster.fence(2)
    for _ in range(3):
        voter.tick()
        voter.hear(replace(now, broker_epoch=now.broker_epoch - 1, applied_index=1 << 20))
        assert voter.decide() == [], "it may not know yet what it holds"
    voter.hear(replace(now, applied_index=1 << 20))
    assert voter.decide() == [unfence(voter, 2)]


def test_a_broker_that_hung_up_has_its_session_unless_its_host_refuses_connections(voter: Voter) -> None:
    voter.silent.add(2)
    voter.controller.hung_up(BrokerId(2))
    assert voter.until(SESSION_S - 2 * TICK_S) == []
    voter.controller.refused(BrokerId(2))
    assert voter.decide() == [fence(voter, 2)]


def test_a_broker_that_calls_again_is_let_be_whatever_its_host_refuses(voter: Voter) -> None:
    voter.controller.hung_up(BrokerId(2))
    voter.tick()
    voter.controller.refused(BrokerId(2))
    assert voter.until(5) == []


def test_a_broker_that_starts_again_after_its_host_refused_connections_has_its_session(voter: Voter) -> None:
    voter.silent.add(2)
    voter.controller.hung_up(BrokerId(2))
    voter.controller.refused(BrokerId(2))
    assert voter.decide() == [fence(voter, 2)]
    voter.silent.clear()
    voter.tick()
    assert voter.decide() == [unfence(voter, 2)]
    assert voter.until(SESSION_S) == []


def test_a_broker_that_is_heard_of_again_is_unfenced_at_once(voter: Voter) -> None:
    voter.silent = {1}
    voter.until(2)
    assert voter.hear(voter.heartbeat(1)), "that may be a reason to decide something"
    assert voter.decide() == [unfence(voter, 1)]
    assert not voter.hear(voter.heartbeat(1))


def test_a_broker_that_starts_is_unfenced_once_it_knows_what_it_holds(voter: Voter) -> None:
    old = voter.heartbeat(1)
    voter.silent = {1}
    voter.cluster.start(1)
    early = replace(voter.heartbeat(1), applied_index=voter.cluster.broker(1).epoch - 1)
    for heartbeat in (old, early):
        assert voter.hear(heartbeat)
        assert voter.decide() == []
    voter.hear(voter.heartbeat(1))
    assert voter.decide() == [unfence(voter, 1)]


def test_an_old_heartbeat_unfences_no_broker(voter: Voter) -> None:
    voter.cluster.start(1)
    voter.hear(voter.heartbeat(1))
    voter.silent = {1}
    for _ in range(round(SESSION_S / TICK_S)):
        voter.tick()
    assert voter.decide() == []


def test_unregistered_brokers_are_passed_over(voter: Voter) -> None:
    stranger = replace(voter.heartbeat(1), broker_id=BrokerId(9))
    assert not voter.hear(stranger)
    assert voter.until(3) == []


def test_a_controller_that_stood_still_fences_no_broker_for_it(voter: Voter) -> None:
    voter.silent = {1, 2, 3}
    voter.now_s += 20
    assert voter.decide() == []
    voter.silent = {2}
    assert voter.until(SESSION_S + TICK_S) == [fence(voter, 2)]


def test_the_silence_before_it_stood_still_counts(voter: Voter) -> None:
    voter.silent = {2}
    voter.until(SESSION_S - 2 * TICK_S)
    voter.now_s += 20
    assert voter.decide() == []
    assert voter.until(3 * TICK_S) == [fence(voter, 2)]


def test_a_broker_that_is_heard_last_after_a_pause_is_not_fenced(voter: Voter) -> None:
    voter.now_s += 10 * SESSION_S
    voter.silent = {3}
    voter.tick()
    assert voter.decide() == []
    voter.silent = set()
    assert voter.until(10) == []


def test_short_pauses_are_no_excuse(voter: Voter) -> None:
    voter.silent = {2}
    decided = []
    for _ in range(4):
        voter.now_s += SESSION_S / 4
        voter.tick()
        decided += voter.decide()
    assert decided == [fence(voter, 2)]


def test_a_new_controller_knows_who_is_silent(voter: Voter) -> None:
    voter.silent = {1}
    for _ in range(round(SESSION_S / TICK_S)):
        voter.tick()
    voter.take_over()
    assert voter.decide() == [fence(voter, 1)]


def test_a_new_controller_is_in_touch_by_the_fenced_brokers_too(voter: Voter) -> None:
    voter.cluster.start(3)
    voter.silent = {1}
    for _ in range(round(SESSION_S / TICK_S)):
        voter.tick()
    voter.take_over()
    assert fence(voter, 1) in voter.decide()


def test_a_new_controller_that_was_cut_off_itself_gives_everybody_a_session(voter: Voter) -> None:
    voter.silent = {2, 3}
    for _ in range(100):
        voter.tick()
    voter.take_over()
    assert voter.decide() == []
    voter.silent = {3}
    assert voter.until(SESSION_S + TICK_S) == [fence(voter, 3)]


def test_a_controller_that_hears_hardly_anybody_waits_for_another_session(voter: Voter) -> None:
    voter.silent = {2, 3}
    assert voter.until(2 * SESSION_S - TICK_S) == []
    assert voter.until(2 * TICK_S) == [fence(voter, 2), fence(voter, 3)]


def test_a_voter_that_has_just_started_gives_everybody_a_session() -> None:
    voter = Voter(MetadataScenario().create(1, 2, 3), silent=(1,))
    assert voter.until(SESSION_S - 2 * TICK_S) == []
    assert voter.until(2 * TICK_S) == [fence(voter, 1)]


def test_a_broker_that_wants_to_stop_is_let_go(voter: Voter) -> None:
    voter.stopping = {1}
    assert voter.hear(voter.heartbeat(1))
    assert voter.decide() == [BeginControlledShutdown(BrokerId(1), voter.cluster.broker(1).epoch)]
    assert voter.cluster.partition.leader == 2
    assert voter.until(5) == []
    voter.silent = {1}
    assert voter.until(2) == [fence(voter, 1)]


def test_a_fenced_broker_that_wants_to_stop_is_left_alone(voter: Voter) -> None:
    voter.stopping = {1}
    voter.cluster.start(1)
    assert voter.until(5) == []


def test_who_comes_back_leads_what_another_leaves_in_the_same_turn() -> None:
    voter = Voter(MetadataScenario().create(1, 3, min_isr=2))
    voter.cluster.start(3)
    voter.silent = {1, 3}
    voter.until(SESSION_S - TICK_S)
    voter.silent = {1}
    voter.tick()
    assert voter.decide() == [unfence(voter, 3), fence(voter, 1)]
    assert voter.cluster.partition.leader == 3


def led_by_another(count: int, of: int) -> MetadataScenario:
    """Return broker 1 as preferred leader of `of` partitions and in all their ISRs; broker 2 leads `count` of them."""
    cluster = MetadataScenario().create(1, 2, partitions=of).restart(1)
    both = tuple((broker, cluster.broker(broker).epoch) for broker in (BrokerId(1), BrokerId(2)))
    changes = tuple(
        IsrChange(TOPIC, index, partition.leader_epoch, partition.partition_epoch, both)
        for index, partition in enumerate(cluster.image.topics_by_id[TOPIC].partitions)
    )
    back = tuple((TOPIC, index) for index in range(count, of))
    return cluster.apply(
        AlterPartitions(BrokerId(2), cluster.broker(2).epoch, changes), ElectLeaders(Election.PREFERRED, back)
    )


def leaders(voter: Voter) -> list[int]:
    return [partition.leader for partition in voter.cluster.image.topics_by_id[TOPIC].partitions]


def test_leaders_go_back_to_where_they_are_preferred_when_it_is_looked_at() -> None:
    voter = Voter(led_by_another(2, of=4))
    assert voter.until(RULES.rebalance_interval_s - 1) == []
    assert voter.until(2) == [ElectLeaders(Election.PREFERRED, ((TOPIC, 0), (TOPIC, 1)))]
    assert leaders(voter) == [1] * 4
    assert voter.until(2 * RULES.rebalance_interval_s) == []


@pytest.mark.parametrize(("count", "is_enough"), [(1, False), (2, True)])
def test_a_small_imbalance_is_let_be(count: int, is_enough: bool) -> None:
    voter = Voter(led_by_another(count, of=10))
    assert bool(voter.until(RULES.rebalance_interval_s + 1)) is is_enough


def test_many_leaders_go_back_in_batches() -> None:
    many = 2 * ELECTIONS_MAX + 1
    voter = Voter(led_by_another(many, of=many), replace(RULES, imbalance_percentage_max=0))
    decided = voter.until(RULES.rebalance_interval_s + 1)
    assert [len(one.partitions) for one in decided if isinstance(one, ElectLeaders)] == [
        ELECTIONS_MAX,
        ELECTIONS_MAX,
        1,
    ]
    assert leaders(voter) == [1] * many


def test_only_who_is_in_sync_is_given_leaders_back() -> None:
    voter = Voter(MetadataScenario().create(1, 2).restart(1))
    assert voter.cluster.partition.isr == (2,)
    assert voter.until(2 * RULES.rebalance_interval_s) == []


def test_leaders_stay_where_that_is_wanted() -> None:
    voter = Voter(led_by_another(4, of=4), replace(RULES, is_rebalancing=False))
    assert voter.until(2 * RULES.rebalance_interval_s) == []


def test_a_controller_waits_for_another_session_however_many_brokers_are_out_of_service() -> None:
    voter = Voter(MetadataScenario(5).create(1, 2, 3, 4, 5))
    voter.silent = {3, 4, 5}
    voter.until(3 * SESSION_S)
    assert [broker.is_fenced for broker in voter.cluster.image.brokers.values()] == [False, False, True, True, True]
    voter.silent |= {1, 2}
    assert voter.until(1.5 * SESSION_S) == []
