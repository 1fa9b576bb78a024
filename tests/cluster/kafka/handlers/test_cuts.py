"""CreateCut while the cluster changes: records that retention removes meanwhile, brokers that do not follow."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import NOW_MS, AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import (
    CreateCutRequest,
    CreateCutResponse,
    DescribeCutsRequest,
    DropCutRequest,
)
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.handlers import create_cut, describe_cuts, drop_cut
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.metadata.cuts import Cut
from cordwood.storage.types import NEVER_EXPIRES

TOPIC = UUID(int=5)


class Offsets:
    """The leaders of a topic of one partition: each question about its start gets the next answer, then the last."""

    def __init__(self, *starts: int, end: int = 9) -> None:
        self._starts, self._end = list(starts), end
        self.pinned: list[Cut] = []
        self.is_everyone_there = True

    async def starts(self, _topics: Any) -> Mapping[tuple[str, int], int]:
        return {("orders", 0): self._starts.pop(0) if len(self._starts) > 1 else self._starts[0]}

    async def stable_ends(self, _topics: Any) -> Mapping[tuple[str, int], int]:
        return {("orders", 0): self._end}

    async def pinned_everywhere(self, cut: Cut) -> None:
        self.pinned.append(cut)
        if not self.is_everyone_there:
            raise Refused(ErrorCode.request_timed_out, "Broker 2 does not know the cut yet.")


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    """Return the fixture with a topic of one partition."""
    admin.propose(CreateTopic(TOPIC, "orders", ((BrokerId(1),),)))
    return admin


def call(admin: AdminFixture) -> Call:
    return Call(admin.services, 0, "test", "127.0.0.1", "PLAINTEXT")


def create(
    admin: AdminFixture, offsets: Offsets, name: str = "monday", lifetime_ms: int = NEVER_EXPIRES
) -> CreateCutResponse:
    admin.services.cut_offsets = offsets  # type: ignore[assignment]
    request = CreateCutRequest(name=name, topics=("orders", "orders"), lifetime_ms=lifetime_ms)
    return admin.runner.run(create_cut.handle(request, call(admin)))


def test_a_cut_is_created_described_and_dropped(admin: AdminFixture) -> None:
    offsets = Offsets(5)
    made = create(admin, offsets, lifetime_ms=1000)
    assert made.error_code is ErrorCode.none, made
    assert list(admin.image.cuts.values()) == offsets.pinned
    (cut,) = made.cuts
    assert (cut.created_ms, cut.expires_ms) == (NOW_MS, NOW_MS + 1000)
    described = admin.runner.run(describe_cuts.handle(DescribeCutsRequest(names=("none", "monday")), call(admin)))
    assert described.cuts == made.cuts
    dropped = admin.runner.run(drop_cut.handle(DropCutRequest(name="monday"), call(admin)))
    assert (dropped.error_code, dict(admin.image.cuts)) == (ErrorCode.none, {})


def test_records_that_are_removed_meanwhile_are_not_in_the_cut(admin: AdminFixture) -> None:
    offsets = Offsets(5, 7, 7)
    ((row,),) = [topic.partitions for cut in create(admin, offsets).cuts for topic in cut.topics]
    assert (row.start, row.end, len(offsets.pinned)) == (7, 9, 2)
    assert len(admin.image.cuts) == 1


def test_a_log_that_begins_after_the_stable_end_gives_an_empty_range(admin: AdminFixture) -> None:
    ((row,),) = [topic.partitions for cut in create(admin, Offsets(9, end=8)).cuts for topic in cut.topics]
    assert (row.start, row.end) == (9, 9)


def test_a_log_that_never_stands_still_gives_no_cut(admin: AdminFixture) -> None:
    assert create(admin, Offsets(*range(50))).error_code is ErrorCode.request_timed_out
    assert not admin.image.cuts


def test_a_broker_that_does_not_know_the_cut_gives_no_cut(admin: AdminFixture) -> None:
    offsets = Offsets(5)
    offsets.is_everyone_there = False
    assert create(admin, offsets).error_code is ErrorCode.request_timed_out
    assert not admin.image.cuts


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a" * 250])
def test_a_name_is_also_that_of_an_object(admin: AdminFixture, name: str) -> None:
    assert create(admin, Offsets(5), name).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("lifetime_ms", [0, -2, 1 << 62])
def test_a_lifetime_has_limits(admin: AdminFixture, lifetime_ms: int) -> None:
    assert create(admin, Offsets(5), lifetime_ms=lifetime_ms).error_code is ErrorCode.invalid_request
