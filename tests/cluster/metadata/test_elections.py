"""Leader election, ISR and eligible leader replicas as brokers start, stop, are fenced, and lose their disks."""

from dataclasses import replace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from metadata_scenario import ANOTHER, TOPIC, MetadataScenario

from cordwood.cluster.metadata import elections
from cordwood.cluster.metadata.commands import (
    AlterConfigs,
    AlterPartitions,
    BrokerId,
    ConfigChange,
    CreateTopic,
    Election,
    FenceBroker,
    ReassignPartition,
    ReportUnflushed,
    ResourceType,
    UnregisterBroker,
)
from cordwood.cluster.metadata.image import MIN_ISR, NO_LEADER, PartitionImage

LARGE = UUID(int=7)


@pytest.fixture
def cluster() -> MetadataScenario:
    """Return three brokers that all hold the partition, with min.insync.replicas 1."""
    return MetadataScenario().create(1, 2, 3)


@pytest.fixture
def careful() -> MetadataScenario:
    """Return three brokers that all hold the partition, with min.insync.replicas 2."""
    return MetadataScenario().create(1, 2, 3, min_isr=2)


def test_another_in_sync_leads_in_place_of_one_that_falls_silent(cluster: MetadataScenario) -> None:
    cluster.fence(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))
    assert (cluster.partition.leader_epoch, cluster.partition.partition_epoch) == (1, 1)


def test_a_new_leader_has_only_the_living_in_sync() -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    partition = PartitionImage((one, two, three), (one, two, three), one)
    elected = elections.without(partition, one, lambda broker: broker == three, min_isr=1)
    assert (elected.leader, elected.isr) == (three, (three,))


def test_a_new_partition_has_only_the_living_in_sync() -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    created = elections.new_partition((one, two, three), lambda broker: broker != one)
    assert (created.leader, created.isr) == (two, (two, three))


def test_a_replica_that_a_reassignment_removes_is_not_eligible() -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    partition = PartitionImage((one, two, three), (one,), one, elr=(two, three))
    moved = elections.moving(partition, (one, two), lambda _: True)
    assert (moved.replicas, moved.isr, moved.elr) == ((one, two), (one,), (two,))


@pytest.mark.parametrize(("isr", "alive", "leader"), [((1, 2), (1, 2), 1), ((1, 2), (2,), 2), ((2,), (1, 2), 2)])
def test_the_preferred_leads_where_it_is_in_sync_and_alive(
    isr: tuple[int, ...], alive: tuple[int, ...], leader: int
) -> None:
    one, two = BrokerId(1), BrokerId(2)
    partition = PartitionImage((one, two), tuple(map(BrokerId, isr)), two)
    assert elections.preferred(partition, alive.__contains__).leader == leader


@pytest.mark.parametrize(("candidate", "leader"), [(1, NO_LEADER), (2, 2), (9, NO_LEADER), (None, 2)])
def test_an_unclean_election_takes_a_replica_that_is_alive(candidate: int | None, leader: int) -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    partition = PartitionImage((one, two, three), (one,), NO_LEADER)
    named = None if candidate is None else BrokerId(candidate)
    assert elections.unclean(partition, named, (2, 3, 9).__contains__).leader == leader


def test_a_follower_that_falls_silent_leaves_the_leader_as_it_is(cluster: MetadataScenario) -> None:
    cluster.fence(2)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1, 3))
    assert (cluster.partition.leader_epoch, cluster.partition.partition_epoch) == (0, 1)


def test_equal_partitions_change_alike_and_share_one_object_and_others_stay_as_they_are() -> None:
    one, two = BrokerId(1), BrokerId(2)
    scenario = MetadataScenario().create(1, 2)
    scenario.apply(CreateTopic(LARGE, "large", ((one, two), (two,)) * 500, ()))
    before = scenario.image.topics_by_id[LARGE].partitions
    scenario.fence(1)
    after = scenario.image.topics_by_id[LARGE].partitions
    assert [partition.leader for partition in after] == [2] * 1000
    assert len(set(map(id, after))) == 2
    assert all(now is was for was, now in zip(before[1::2], after[1::2], strict=True))


def test_a_replica_out_of_sync_never_leads(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).fence(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, (1,))
    cluster.restart(2)
    assert cluster.partition.leader == NO_LEADER


def test_a_partition_that_goes_on_without_a_leader_does_not_change(cluster: MetadataScenario) -> None:
    before = cluster.in_sync(1).fence(1, 2).partition
    assert before.leader == NO_LEADER
    assert cluster.restart(2).fence(3).restart(3).partition is before


def test_the_last_in_sync_leads_again_when_it_is_back(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).fence(1).restart(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1,))
    assert cluster.partition.leader_epoch == 2


def test_a_broker_that_starts_anew_has_left_the_in_sync_set(cluster: MetadataScenario) -> None:
    cluster.start(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))


def test_a_partition_that_is_created_while_no_broker_is_alive_waits_for_its_first_replica() -> None:
    cluster = MetadataScenario().fence(1, 2, 3).create(1, 2, 3)
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, (1,))
    cluster.unfence(2)
    assert cluster.partition.leader == NO_LEADER
    cluster.unfence(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1,))


def test_who_left_a_set_that_can_commit_nothing_since_may_still_lead(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2)
    assert (careful.partition.isr, careful.partition.elr) == ((1,), (2,))
    careful.fence(1)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (NO_LEADER, (1,), (2,))
    careful.restart(2)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (2, (2,), (1,))


def test_who_left_a_set_that_could_still_commit_is_not_eligible(careful: MetadataScenario) -> None:
    careful.fence(3).fence(1, 2).restart(3)
    assert (careful.partition.leader, careful.partition.elr) == (NO_LEADER, (1,))


def test_the_elr_is_empty_once_enough_are_in_sync(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2).unfence(3).in_sync(1, 3)
    assert (careful.partition.isr, careful.partition.elr) == ((1, 3), ())


def test_whom_the_leader_drops_below_the_least_is_eligible(careful: MetadataScenario) -> None:
    careful.in_sync(1)
    assert (careful.partition.isr, careful.partition.elr) == ((1,), (2, 3))


def test_who_was_eligible_stays_so_when_the_leader_drops_another() -> None:
    strict = MetadataScenario().create(1, 2, 3, min_isr=3)
    strict.in_sync(1, 2).in_sync(1)
    assert (strict.partition.isr, strict.partition.elr) == ((1,), (2, 3))


@pytest.mark.parametrize("level", [1, 3])
def test_a_lower_min_isr_makes_no_replica_eligible(level: int) -> None:
    careful = MetadataScenario().level(level).create(1, 2, 3, min_isr=2).in_sync(1).set_min_isr(1)
    assert (careful.partition.isr, careful.partition.elr) == ((1,), ())
    assert careful.partition.partition_epoch == 2


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_a_min_isr_that_is_still_not_reached_leaves_the_eligible(before: int, after: int) -> None:
    cluster = MetadataScenario().level(3).create(1, 2, 3, min_isr=before).in_sync(1)
    partition = cluster.partition
    assert cluster.set_min_isr(after).partition is partition
    cluster.lose(1, is_gone=True)
    assert (cluster.partition.leader, cluster.partition.isr, cluster.partition.elr) == (2, (2,), (3,))


def test_a_change_of_min_isr_leaves_none_eligible_below_level_3() -> None:
    cluster = MetadataScenario().level(2).create(1, 2, 3, min_isr=2).in_sync(1).set_min_isr(3)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), ())


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_replica_that_lost_records_leaves_while_others_are_in_sync(cluster: MetadataScenario, is_gone: bool) -> None:
    cluster.lose(1, is_gone=is_gone)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))


def test_a_damaged_replica_goes_on_where_there_is_no_better(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).lose(1, is_gone=False)
    assert (cluster.partition.leader, cluster.partition.isr) == (1, (1,))


def test_an_eligible_replica_leads_in_place_of_a_damaged_one(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2).restart(2).lose(1, is_gone=False)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (2, (2,), ())


def test_what_a_leader_knew_of_a_replica_that_lost_records_ends_with_the_epoch(cluster: MetadataScenario) -> None:
    for _ in range(2):
        before = cluster.partition
        cluster.lose(3, is_gone=False)
        assert (cluster.partition.leader, cluster.partition.isr) == (1, (1, 2))
        assert cluster.partition.leader_epoch == before.leader_epoch + 1


def test_a_replica_that_is_gone_leaves_the_isr_empty(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).lose(1, is_gone=True)
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, ())
    cluster.restart(1)
    assert cluster.partition.leader == NO_LEADER


def test_a_broker_that_comes_back_without_its_disk_has_nothing(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).fence(1).restart(1, log_dirs=ANOTHER)
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, ())


def test_all_lose_power_and_the_last_of_them_its_disk() -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=None)
    for broker in (1, 2, 3):
        cluster.start(broker, min_isr=2).unfence(broker)
    cluster.in_sync(1, 2, 3)
    for broker in (2, 3):
        cluster.start(broker, min_isr=2)
    cluster.start(1, log_dirs=ANOTHER, min_isr=2).unfence(2, 3)
    assert (cluster.partition.leader, cluster.partition.isr) == (3, (3,))


def test_a_broker_that_asks_for_less_ends_what_was_chosen_by_more() -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=None)
    for broker in (1, 2, 3):
        cluster.start(broker, min_isr=2).unfence(broker)
    cluster.in_sync(1, 2, 3).fence(2, 3)
    assert cluster.partition.elr == (3,)
    cluster.start(3, min_isr=1)
    assert cluster.partition.elr == ()


@pytest.mark.parametrize("broker", ["", "2"])
def test_a_change_of_the_brokers_min_isr_ends_what_was_chosen_by_the_former(broker: str) -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=None)
    for each in (1, 2, 3):
        cluster.start(each, min_isr=2).unfence(each)
    cluster.in_sync(1, 2, 3).fence(2, 3)
    assert cluster.partition.elr == (3,)
    cluster.apply(AlterConfigs(ResourceType.BROKER, broker, (ConfigChange("retention.ms", None, "1"),)))
    assert cluster.partition.elr == (3,)
    cluster.apply(AlterConfigs(ResourceType.BROKER, broker, (ConfigChange(MIN_ISR, None, "1"),)))
    assert cluster.partition.elr == ()


def test_an_eligible_broker_that_comes_back_without_its_disk_is_eligible_no_more(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2).restart(2, log_dirs=ANOTHER).fence(1)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (NO_LEADER, (1,), ())


def test_a_broker_that_stops_hands_over_before(cluster: MetadataScenario) -> None:
    cluster.stop(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))
    assert cluster.refusal(AlterPartitions(BrokerId(2), cluster.broker(2).epoch, (cluster.proposal(1, 2, 3),))) is None
    assert cluster.partition.isr == (2, 3), "who is about to stop does not come back into the set"


def test_a_broker_that_stops_goes_on_leading_until_there_is_another(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).stop(1)
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 0)
    cluster.in_sync(1, 3)
    assert (cluster.partition.leader, cluster.partition.isr, cluster.partition.leader_epoch) == (3, (3,), 1)


def test_a_broker_that_stops_hands_over_to_an_eligible_replica(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2).restart(2).stop(1)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (2, (2,), (1,))


def test_a_broker_that_stopped_leads_nothing_once_it_is_silent(cluster: MetadataScenario) -> None:
    cluster.in_sync(1).stop(1).fence(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (NO_LEADER, (1,))
    cluster.restart(1)
    assert cluster.partition.leader == 1


def test_a_change_from_what_is_no_more_is_passed_over(cluster: MetadataScenario) -> None:
    late = cluster.proposal(1)
    leader = cluster.broker(1)
    cluster.in_sync(1, 2).apply(AlterPartitions(leader.id, leader.epoch, (late,)))
    assert cluster.partition.isr == (1, 2)
    cluster.apply(AlterPartitions(leader.id, leader.epoch, (late, cluster.proposal(1, 2, 3))))
    assert cluster.partition.isr == (1, 2, 3), "the others hold"


@pytest.mark.parametrize("members", [(2, 3), (1, 2, 9), ()])
def test_a_set_without_its_leader_or_with_strangers_is_passed_over(
    cluster: MetadataScenario, members: tuple[int, ...]
) -> None:
    cluster.start(9).unfence(9).in_sync(*members)
    assert cluster.partition.isr == (1, 2, 3)


def test_only_who_is_alive_joins_and_in_the_incarnation_that_the_leader_knows(cluster: MetadataScenario) -> None:
    leader = cluster.broker(1)
    cluster.start(3).in_sync(1, 2, 3)
    assert cluster.partition.isr == (1, 2), "it is fenced"
    known = cluster.unfence(3).proposal(1, 2, 3)
    cluster.restart(3).apply(AlterPartitions(leader.id, leader.epoch, (known,)))
    assert cluster.partition.isr == (1, 2), "it has started anew since"
    cluster.in_sync(1, 2, 3)
    assert cluster.partition.isr == (1, 2, 3)


@pytest.mark.parametrize(
    "changed", [{"leader_epoch": -1}, {"leader_epoch": 1}, {"partition_epoch": -1}, {"partition": 1}]
)
def test_a_proposal_about_another_epoch_or_partition_is_passed_over(
    cluster: MetadataScenario, changed: dict[str, int]
) -> None:
    leader, proposal = cluster.broker(1), cluster.proposal(1, 2)
    cluster.apply(AlterPartitions(leader.id, leader.epoch, (replace(proposal, **changed),)))
    assert cluster.partition.isr == (1, 2, 3)
    cluster.apply(AlterPartitions(leader.id, leader.epoch, (proposal,)))
    assert cluster.partition.isr == (1, 2)


def test_only_the_leader_changes_the_set(cluster: MetadataScenario) -> None:
    cluster.apply(AlterPartitions(BrokerId(2), cluster.broker(2).epoch, (cluster.proposal(1, 2),)))
    assert cluster.partition.isr == (1, 2, 3)
    epoch = cluster.broker(1).epoch
    cluster.start(1)
    assert cluster.refusal(AlterPartitions(BrokerId(1), epoch, ())) is ErrorCode.stale_broker_epoch


def test_an_incarnation_is_not_fenced_for_the_silence_of_the_last(cluster: MetadataScenario) -> None:
    epoch = cluster.broker(1).epoch
    cluster.restart(1)
    assert cluster.refusal(FenceBroker(BrokerId(1), epoch)) is ErrorCode.stale_broker_epoch
    assert cluster.broker(1).is_alive


def test_the_preferred_replica_leads_again_once_it_is_in_sync(cluster: MetadataScenario) -> None:
    cluster.restart(1).elect(Election.PREFERRED)
    assert cluster.partition.leader == 2
    cluster.in_sync(1, 2, 3).elect(Election.PREFERRED)
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 2)
    epoch = cluster.partition.partition_epoch
    assert cluster.elect(Election.PREFERRED).partition.partition_epoch == epoch


def test_an_unclean_election_takes_who_is_named_or_else_the_first_alive(cluster: MetadataScenario) -> None:
    cluster.in_sync(1)
    assert cluster.elect(Election.UNCLEAN, 2).partition.leader == 1, "there is a leader"
    cluster.fence(1)
    assert cluster.elect(Election.UNCLEAN, 1).partition.leader == NO_LEADER, "it is not alive"
    cluster.elect(Election.UNCLEAN, 3)
    assert (cluster.partition.leader, cluster.partition.isr) == (3, (3,))
    cluster.fence(3).elect(Election.UNCLEAN)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))


def test_after_an_unclean_election_no_replica_is_eligible_for_what_it_had_before(careful: MetadataScenario) -> None:
    careful.fence(3).fence(2).fence(1)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (NO_LEADER, (1,), (2,))
    careful.unfence(3).elect(Election.UNCLEAN, 3)
    assert (careful.partition.leader, careful.partition.isr, careful.partition.elr) == (3, (3,), ())
    careful.fence(3).unfence(2)
    assert careful.partition.leader == NO_LEADER, "broker 2 lacks what broker 3 has committed since"


def test_a_move_is_over_when_all_are_in_sync_where_it_leads() -> None:
    cluster = MetadataScenario(5).create(1, 2).move(3, 4)
    partition = cluster.partition
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (partition.leader, partition.isr) == (1, (1, 2))
    cluster.in_sync(1, 2, 3)
    assert cluster.partition.adding == (3, 4)
    cluster.in_sync(1, 2, 3, 4)
    partition = cluster.partition
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 4), (), ())
    assert (partition.leader, partition.isr, partition.leader_epoch) == (3, (3, 4), 1)


@pytest.mark.parametrize(("level", "epoch"), [(2, 0), (3, 1)])
def test_a_leader_that_stays_begins_an_epoch_when_a_replica_is_removed(level: int, epoch: int) -> None:
    """Else the removed broker is in sync by its former reports when it is added again, with an empty log."""
    cluster = MetadataScenario(3).level(level).create(1, 2, 3).move(1, 2)
    assert (cluster.partition.replicas, cluster.partition.leader_epoch) == ((1, 2), epoch)
    cluster.move(2, 1, 3)
    assert (cluster.partition.replicas, cluster.partition.leader_epoch) == ((2, 1, 3), epoch), "nothing is removed"
    cluster.take_back()
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 2 * epoch)


def test_a_move_to_where_it_is_changes_the_order_alone(cluster: MetadataScenario) -> None:
    cluster.move(3, 1, 2)
    assert (cluster.partition.replicas, cluster.partition.leader) == ((3, 1, 2), 1)
    before = cluster.partition
    assert cluster.move(3, 1, 2).partition is before


def test_replicas_go_away_at_once_where_all_others_are_in_sync(cluster: MetadataScenario) -> None:
    cluster.move(2, 3)
    assert (cluster.partition.replicas, cluster.partition.removing) == ((2, 3), ())
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))


@pytest.mark.parametrize(("level", "is_over"), [(1, False), (2, True)])
def test_a_move_waits_for_what_it_adds_alone(level: int, is_over: bool) -> None:
    cluster = MetadataScenario(4).level(level).create(1, 2, 3).in_sync(1, 2).move(2, 3, 4).in_sync(1, 2, 4)
    assert (cluster.partition.replicas == (2, 3, 4)) is is_over, "broker 3 was not in sync before either"
    cluster.in_sync(*cluster.partition.isr, 3)
    assert (cluster.partition.replicas, cluster.partition.isr) == ((2, 3, 4), (2, 3, 4))


def test_a_move_is_not_over_before_one_that_stays_is_in_sync() -> None:
    cluster = MetadataScenario(3).level(2).create(1, 2, 3).in_sync(1, 2).move(3)
    assert (cluster.partition.replicas, cluster.partition.removing) == ((3, 1, 2), (1, 2))
    cluster.in_sync(1, 2, 3)
    assert (cluster.partition.replicas, cluster.partition.leader) == ((3,), 3)


def test_a_move_asks_for_no_more_in_sync_than_before_and_after_it() -> None:
    cluster = MetadataScenario(5).level(2).create(1, min_isr=2).move(2, 3)
    assert elections.commit_size(cluster.partition, 2) == 1
    assert elections.commit_size(cluster.partition, 2, level=1) == 2
    cluster.in_sync(1, 2, 3).move(4)
    assert elections.commit_size(cluster.partition, 2) == 1
    cluster.in_sync(2, 3, 4)
    assert cluster.partition.replicas == (4,)


def test_a_move_to_fewer_replicas_forgets_who_was_eligible() -> None:
    cluster = MetadataScenario(4).level(2).create(1, 2, 3, min_isr=2).fence(3).fence(2)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), (2,))
    cluster.move(4)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), ()), "one is enough from here on"


def test_a_new_level_counts_for_moves_from_its_first_moment() -> None:
    cluster = MetadataScenario(4).create(1, 2, min_isr=3).move(3, 4).in_sync(1, 2, 3).fence(2)
    assert (cluster.partition.isr, cluster.partition.elr) == ((3, 1), (2,))
    before = cluster.level(2).partition
    assert (before.isr, before.elr) == ((3, 1), ())
    assert elections.commit_size(before, 3) == 2


def test_a_new_level_does_not_change_a_partition_that_stays_where_it_is() -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=2).fence(3).fence(2)
    before = cluster.partition
    assert before.elr == (2,)
    assert cluster.level(2).partition is before


def test_partitions_are_under_replicated_against_where_they_go() -> None:
    cluster = MetadataScenario(4).level(2).create(1, 2, 3).move(4, 2, 3)
    assert not elections.is_under_replicated(cluster.partition), "one more is added, and none is missing"
    assert elections.is_under_replicated(cluster.in_sync(1, 2).partition)
    cluster = MetadataScenario(4).level(2).create(1).move(1, 2, 3)
    assert elections.is_under_replicated(cluster.partition)


def test_a_move_is_taken_back() -> None:
    cluster = MetadataScenario(4).create(1, 2).move(3, 4).in_sync(1, 2, 3).take_back()
    assert (cluster.partition.replicas, cluster.partition.isr, cluster.partition.adding) == ((1, 2), (1, 2), ())
    command = ReassignPartition(TOPIC, 0, None)
    assert cluster.refusal(command) is ErrorCode.no_reassignment_in_progress


def test_a_move_twice_is_a_move_once() -> None:
    cluster = MetadataScenario(4).create(1, 2).move(3, 4)
    before = cluster.partition
    assert cluster.move(3, 4).partition is before


def test_another_move_goes_by_where_the_partition_was() -> None:
    cluster = MetadataScenario(5).create(1, 2).move(3, 4).in_sync(1, 2, 3).move(1, 5)
    partition = cluster.partition
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 5, 2), (5,), (2,))
    assert partition.isr == (1, 2)


def test_no_move_takes_the_only_ones_in_sync_away() -> None:
    cluster = MetadataScenario(4).create(1).move(2, 3).in_sync(1, 2).fence(1)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))
    for target in ((BrokerId(4),), None):
        assert cluster.refusal(ReassignPartition(TOPIC, 0, target)) is ErrorCode.invalid_replica_assignment
    assert cluster.partition.isr == (2,)


@pytest.mark.parametrize("target", [(), (BrokerId(1), BrokerId(1)), (BrokerId(9),)])
def test_a_move_to_nowhere_is_refused(cluster: MetadataScenario, target: tuple[BrokerId, ...]) -> None:
    assert cluster.refusal(ReassignPartition(TOPIC, 0, target)) is ErrorCode.invalid_replica_assignment
    assert cluster.refusal(ReassignPartition(TOPIC, 7, target)) is ErrorCode.unknown_topic_or_partition


def test_a_broker_is_forgotten_once_it_neither_runs_nor_holds_anything(cluster: MetadataScenario) -> None:
    forget = UnregisterBroker(BrokerId(1))
    assert cluster.refusal(forget) is ErrorCode.invalid_request, "it runs"
    assert cluster.fence(1).refusal(forget) is ErrorCode.invalid_request, "it holds the partition"
    cluster.move(2, 3)
    assert cluster.refusal(forget) is None
    assert 1 not in cluster.image.brokers
    assert cluster.refusal(forget) is ErrorCode.broker_id_not_registered
    homeless = CreateTopic(UUID(int=2), "other", ((BrokerId(1),),))
    assert cluster.refusal(homeless) is ErrorCode.invalid_replica_assignment


def test_who_lost_its_memory_is_not_counted_on_where_another_is() -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=2).fence(3).fence(2)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), (2,))
    cluster.start(2)
    report_unflushed(cluster, 2)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), ())
    cluster.start(1)
    report_unflushed(cluster, 1)
    assert (cluster.partition.isr, cluster.partition.elr) == ((1,), ())
    cluster.unfence(1)
    assert cluster.partition.leader == 1, "it is the best there is"


def test_who_lost_its_memory_waits_for_another_that_has_everything() -> None:
    cluster = MetadataScenario().create(1, 2, 3, min_isr=2).fence(3).fence(2).fence(1)
    cluster.start(1)
    report_unflushed(cluster, 1)
    cluster.unfence(1)
    assert (cluster.partition.isr, cluster.partition.elr, cluster.partition.leader) == ((), (2,), NO_LEADER)
    cluster.restart(2)
    assert cluster.partition.leader == 2


def report_unflushed(cluster: MetadataScenario, broker: int) -> None:
    cluster.apply(ReportUnflushed(BrokerId(broker), cluster.broker(broker).epoch, ((TOPIC, 0),)))


def test_a_leader_that_is_stopping_leads_on_when_its_last_follower_falls_silent() -> None:
    one, two = BrokerId(1), BrokerId(2)
    partition = PartitionImage((one, two), (one, two), one)
    alone = elections.without(partition, two, lambda _: False, min_isr=1)
    assert (alone.leader, alone.isr, alone.leader_epoch) == (one, (one,), partition.leader_epoch)


def test_the_preferred_leader_keeps_the_eligible() -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    partition = PartitionImage((one, two, three), (one, two), two, elr=(three,))
    elected = elections.preferred(partition, lambda _: True)
    assert (elected.leader, elected.isr, elected.elr) == (one, (one, two), (three,))
