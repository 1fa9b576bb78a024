"""ISR proposals: an unknown outcome is resolved, and the proposed set counts until then (rule 5)."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.broker.isr_changes import IsrChanges
from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId
from cordwood.cluster.metadata.image import BrokerImage, CommandRefused, Image, PartitionImage, TopicImage
from cordwood.cluster.metadata.quorum import QuorumFailed
from cordwood.replication.assignment import Assignment

ME, TWO = BrokerId(1), BrokerId(2)
BROKERS = {broker: BrokerImage(broker, UUID(int=broker), 40 + broker, (), is_fenced=False) for broker in (ME, TWO)}


class Story:
    """A leader that is alone in its ISR and proposes broker 2 too, with given outcomes of the proposals."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.decided_in(9)
        self.happened: list[str] = []
        assignment = Assignment(ME, 5, 9, (ME, TWO), frozenset({ME}), 1)
        self.view = SimpleNamespace(assignment=assignment, refused=lambda _epoch: self.happened.append("settled"))
        self.topic, self.topic_id, self.index = "t", UUID(int=3), 0
        self.leading, self.leader_epoch = self, 5
        self.epoch_of_link: int | None = 40 + TWO

    def decided_in(self, partition_epoch: int) -> None:
        """Let the metadata have this partition epoch, whether the replica has learnt of it or not."""
        partition = PartitionImage((ME, TWO), (ME,), ME, 5, partition_epoch)
        topic = TopicImage(UUID(int=3), "t", (partition,))
        self.image = Image(brokers=BROKERS, topics_by_id={topic.id: topic})

    def contained(self) -> Any:
        return nullcontext()

    def propose_isr(self, _may_join: object) -> set[int] | None:
        return {ME, TWO}

    async def propose(self, command: AlterPartitions) -> Image:
        assert command.changes[0].partition_epoch == 9
        self.happened.append("proposed")
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return self.image

    def changes(self) -> IsrChanges:
        return IsrChanges(cast(Any, self), ME, lambda _: self.epoch_of_link)

    def reported(self) -> list[str]:
        async def story() -> None:
            self.changes().want(cast(Any, self))
            await asyncio.sleep(10)

        run(story())
        return self.happened


def test_what_was_decided_is_settled_once() -> None:
    assert Story(None).reported() == ["proposed", "settled"]


def test_what_was_applied_is_not_rolled_back_before_the_replica_has_learnt_of_it() -> None:
    story = Story(None)
    story.decided_in(10)
    assert story.reported() == ["proposed"]


def test_a_refusal_is_an_outcome() -> None:
    assert Story(CommandRefused(ErrorCode.invalid_request, "no")).reported() == ["proposed", "settled"]


def test_an_unknown_outcome_is_found_out_before_anything_is_rolled_back() -> None:
    assert Story(QuorumFailed("of unknown cause"), QuorumFailed("still not"), None).reported() == ["proposed"] * 3 + [
        "settled"
    ]


@pytest.mark.parametrize(("epoch_of_link", "may_join"), [(40 + TWO, True), (41, False), (None, False)])
def test_only_the_incarnation_that_is_connected_may_join(epoch_of_link: int | None, may_join: bool) -> None:
    story = Story()
    story.epoch_of_link = epoch_of_link
    assert story.changes().may_join(TWO) is may_join


def test_a_fenced_broker_may_not_join() -> None:
    story = Story()
    fenced = replace(BROKERS[TWO], is_fenced=True)
    story.image = replace(story.image, brokers={**BROKERS, TWO: fenced})
    assert not story.changes().may_join(TWO)
