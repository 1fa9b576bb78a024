"""The damage register: its bound, and when a damaged replica may leave the ISR and be truncated."""

import pytest

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage
from cordwood.cluster.repairs.damage import (
    KEPT_MAX,
    DamageRegister,
    DamageState,
    is_counted_on,
    may_be_cut,
    may_be_dropped,
)
from cordwood.storage.errors import DamagedLog

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)
NO_LEADER_ID = BrokerId(NO_LEADER)


def damage(position: int = 0) -> DamagedLog:
    return DamagedLog("0.log", position, "rotten")


def test_a_place_counts_once_until_it_is_repaired() -> None:
    register = DamageRegister()
    assert register.note(damage(), "t", 3)
    assert not register.note(damage(), "t", 3)
    assert (register.found, register.under_repair) == (1, 1)
    register.begun(damage())
    assert [place.state for place in register.places()] == [DamageState.UNDER_REPAIR]
    register.done(damage())
    register.done(damage())
    assert (register.found, register.repaired, register.under_repair) == (1, 1, 0)
    assert register.note(damage(), "t", 3)
    assert (register.found, register.under_repair) == (2, 1)


def test_only_so_many_places_are_remembered_and_those_not_repaired_first() -> None:
    register = DamageRegister()
    for position in range(KEPT_MAX):
        register.note(damage(position))
    assert not register.note(damage(KEPT_MAX))
    register.done(damage(5))
    assert register.note(damage(KEPT_MAX))
    assert len(register.places()) == KEPT_MAX
    assert 5 not in {place.position for place in register.places()}


@pytest.mark.parametrize(
    ("isr", "elr", "alive", "is_dispensable"),
    [
        (ALL, (), ALL, True),
        ((ONE, TWO), (), (ONE, THREE), False),
        ((ONE,), (TWO,), ALL, True),
        ((ONE,), (), ALL, False),
        ((TWO,), (), ALL, True),
    ],
)
def test_a_damaged_replica_is_dropped_if_somebody_in_its_place_has_everything(
    isr: tuple[BrokerId, ...], elr: tuple[BrokerId, ...], alive: tuple[BrokerId, ...], is_dispensable: bool
) -> None:
    partition = PartitionImage(ALL, isr, isr[0], elr=elr)
    assert may_be_dropped(partition, ONE, alive.__contains__) is is_dispensable


@pytest.mark.parametrize(
    ("partition", "may_cut"),
    [
        (PartitionImage(ALL, (TWO, THREE), TWO, leader_epoch=6), True),
        (PartitionImage(ALL, (TWO, THREE), TWO, leader_epoch=5), False),
        (PartitionImage(ALL, ALL, TWO, leader_epoch=6), False),
        (PartitionImage(ALL, (TWO,), TWO, leader_epoch=6, elr=(ONE,)), False),
        (PartitionImage(ALL, (TWO, THREE), NO_LEADER_ID, leader_epoch=6), False),
        (PartitionImage(ALL, (ONE,), ONE, leader_epoch=6), False),
    ],
    ids=["dropped", "the leader may remember", "in sync", "eligible", "no leader", "leads"],
)
def test_a_damaged_replica_is_truncated_once_it_has_left_the_isr(partition: PartitionImage, may_cut: bool) -> None:
    assert may_be_cut(partition, ONE, found_in_epoch=5) is may_cut


def test_a_leader_is_counted_on() -> None:
    assert is_counted_on(PartitionImage(ALL, (), ONE), ONE)
    assert not is_counted_on(PartitionImage(ALL, (TWO,), TWO), ONE)
