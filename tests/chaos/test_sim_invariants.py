"""Invariants of metadata changes in the simulator: each detects the change that breaks it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cordwood.chaos.sim.images import changes_fit
from cordwood.chaos.sim.invariants import Seen, _nothing_goes_back
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


@pytest.mark.parametrize(
    ("broker_id", "is_compacted", "kinds"),
    [(TWO, True, ["rule-2"]), (TWO, False, ["rule-2"]), (THREE, False, ["rule-2"]), (THREE, True, [])],
)
def test_a_watermark_goes_back_only_where_compaction_may_have_removed_a_leader_epoch(
    broker_id: BrokerId, is_compacted: bool, kinds: list[str]
) -> None:
    """That is a replica of a compacted topic, and out of sync: broker 3 is."""
    log = SimpleNamespace(config=SimpleNamespace(compacted=is_compacted), log_end=12)
    name = {"topic": "t", "topic_id": TOPIC, "index": 0, "leading": None, "leader_epoch": 4}
    broker: Any = SimpleNamespace(broker_id=broker_id, damage=SimpleNamespace(found=0))
    replica: Any = _Replica(log=log, high_watermark=12, **name)
    seen = Seen(newest=image(BEFORE))
    assert list(_nothing_goes_back(broker, replica, seen)) == []
    replica.high_watermark = 11
    assert [found for found, _ in _nothing_goes_back(broker, replica, seen)] == kinds


class _Replica(SimpleNamespace):
    """The state of a replica. Replicas are keys."""

    __hash__ = object.__hash__
