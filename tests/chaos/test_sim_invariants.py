"""Invariants of metadata changes in the simulator: each detects the change that breaks it."""

from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.chaos.sim.images import changes_fit
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import BrokerImage, Image, PartitionImage, TopicImage

TOPIC = UUID(int=1)
ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
ALL = (ONE, TWO, THREE)
BEFORE = PartitionImage(ALL, (ONE, TWO), ONE, leader_epoch=4, partition_epoch=7)


def image(partition: PartitionImage, *fenced: BrokerId) -> Image:
    brokers = {one: BrokerImage(one, UUID(int=one), 1, (), is_fenced=one in fenced) for one in ALL}
    topic = TopicImage(TOPIC, "t", (partition,))
    return Image(brokers=brokers, topics_by_name={"t": topic}, topics_by_id={TOPIC: topic})


@pytest.mark.parametrize(
    ("kinds", "after"),
    [
        ("rule-3 rule-8", replace(BEFORE, leader=THREE, leader_epoch=5, partition_epoch=8)),
        ("rule-3", replace(BEFORE, leader=TWO, partition_epoch=8)),
        ("rule-3", replace(BEFORE, leader_epoch=3, partition_epoch=8)),
        ("rule-6", replace(BEFORE, isr=ALL, partition_epoch=8)),
        ("rule-7", replace(BEFORE, isr=(ONE,))),
        ("rule-7", replace(BEFORE, partition_epoch=6)),
        ("rule-8", replace(BEFORE, isr=(THREE,), leader=THREE, leader_epoch=5, partition_epoch=8)),
        ("rule-8", replace(BEFORE, isr=(ONE,), elr=(TWO,), partition_epoch=8)),
    ],
)
def test_a_change_that_breaks_a_rule_is_noticed(kinds: str, after: PartitionImage) -> None:
    assert [found for found, _ in changes_fit(image(BEFORE), image(after, THREE))] == kinds.split()


@pytest.mark.parametrize(
    "after",
    [
        replace(BEFORE, isr=ALL, partition_epoch=8),
        replace(BEFORE, isr=(TWO,), leader=TWO, leader_epoch=5, partition_epoch=8),
        replace(BEFORE, isr=(ONE,), partition_epoch=8),
    ],
)
def test_a_change_that_keeps_the_rules_is_not(after: PartitionImage) -> None:
    assert list(changes_fit(image(BEFORE), image(after))) == []


def test_a_new_incarnation_that_leads_on_in_its_old_epoch_is_noticed() -> None:
    before = image(BEFORE)
    restarted = BrokerImage(ONE, UUID(int=9), 2, ())
    after = replace(before, brokers={**before.brokers, ONE: restarted})
    assert [found for found, _ in changes_fit(before, after)] == ["rule-3"]
    assert list(changes_fit(before, replace(before, brokers={**before.brokers, TWO: replace(restarted, id=TWO)}))) == []
