"""Cuts in the metadata: their names and limits, what they forbid, and their end."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from metadata_scenario import TOPIC, MetadataScenario

from cordwood.cluster.metadata import cut_changes
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, DeleteTopic
from cordwood.cluster.metadata.cuts import CreateCut, Cut, CutPartition, DropCut, pins_of
from cordwood.cluster.metadata.expiry import CUTS_INTERVAL_S, DROPPED_MAX, CutExpiry
from cordwood.cluster.metadata.image import Image
from cordwood.storage.pins import Pin
from cordwood.storage.types import NEVER_EXPIRES

NOW_MS = 1_700_000_000_000
OTHER = UUID(int=9)


@pytest.fixture
def cluster() -> MetadataScenario:
    """Return a cluster with a topic of two partitions."""
    topic = CreateTopic(TOPIC, "flights", ((BrokerId(1),), (BrokerId(2),)))
    return MetadataScenario().apply(topic)


def cut(name: str, *partitions: CutPartition, created_ms: int = NOW_MS) -> CreateCut:
    return CreateCut(name, created_ms, NEVER_EXPIRES, partitions or (CutPartition(TOPIC, 0, 5, 9),))


def test_a_late_command_does_not_drop_a_newer_cut(cluster: MetadataScenario) -> None:
    cluster.apply(cut("monday"), DropCut("monday", NOW_MS), cut("monday", created_ms=NOW_MS + 1))
    assert cluster.refusal(DropCut("monday", NOW_MS)) is ErrorCode.resource_not_found
    assert cluster.refusal(cut("monday")) is ErrorCode.duplicate_resource
    assert list(cluster.image.cuts) == ["monday"]


def test_a_cut_has_existing_partitions(cluster: MetadataScenario) -> None:
    assert cluster.refusal(cut("monday", CutPartition(TOPIC, 2, 0, 1))) is ErrorCode.unknown_topic_id
    assert cluster.refusal(cut("monday", CutPartition(OTHER, 0, 0, 1))) is ErrorCode.unknown_topic_id


def test_a_pinned_topic_is_not_deleted(cluster: MetadataScenario) -> None:
    cluster.apply(CreateTopic(OTHER, "other", ((BrokerId(1),),)), cut("monday"))
    assert cluster.refusal(DeleteTopic(TOPIC)) is ErrorCode.policy_violation
    assert cluster.refusal(DeleteTopic(OTHER)) is None
    cluster.apply(DropCut("monday", NOW_MS))
    assert cluster.refusal(DeleteTopic(TOPIC)) is None


def test_the_number_of_cuts_is_limited(cluster: MetadataScenario) -> None:
    for number in range(cut_changes.CUTS_MAX):
        cluster.apply(cut(str(number)))
    assert cluster.refusal(cut("one more")) is ErrorCode.policy_violation


def test_the_number_of_pinned_partitions_is_limited(cluster: MetadataScenario) -> None:
    half = (CutPartition(TOPIC, 0, 5, 9),) * (cut_changes.PARTITIONS_MAX // 2)
    cluster.apply(cut("half", *half))
    assert cluster.refusal(cut("too many", *half, half[0])) is ErrorCode.policy_violation
    assert cluster.refusal(cut("all", *half)) is None


def test_several_cuts_pin_all_that_one_of_them_needs() -> None:
    cuts = [
        Cut("a", 0, NEVER_EXPIRES, (CutPartition(TOPIC, 0, 5, 9), CutPartition(TOPIC, 1, 0, 3))),
        Cut("b", 0, NEVER_EXPIRES, (CutPartition(TOPIC, 0, 7, 12),)),
    ]
    assert pins_of(cuts) == {(TOPIC, 0): Pin(5, 12), (TOPIC, 1): Pin(0, 3)}


def expiring(*expiries_ms: int) -> Image:
    cuts = [Cut(f"cut-{number}", number, expiry_ms, ()) for number, expiry_ms in enumerate(expiries_ms)]
    return Image(cuts={cut.name: cut for cut in cuts})


def test_expired_cuts_are_dropped_once_in_an_interval() -> None:
    image, expiry = expiring(NOW_MS - 1, NOW_MS, NOW_MS + 1, NEVER_EXPIRES), CutExpiry()
    assert expiry.decide(image, 0, NOW_MS) == [DropCut("cut-0", 0), DropCut("cut-1", 1)]
    assert expiry.decide(image, CUTS_INTERVAL_S - 1, NOW_MS) == []
    assert len(expiry.decide(image, CUTS_INTERVAL_S, NOW_MS)) == 2


def test_many_expired_cuts_are_dropped_in_portions() -> None:
    assert len(CutExpiry().decide(expiring(*[NOW_MS] * (2 * DROPPED_MAX)), 0, NOW_MS)) == DROPPED_MAX
