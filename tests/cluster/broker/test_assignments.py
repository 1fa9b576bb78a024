"""Assignments on a failing disk cost the replicas in that log directory and nothing else."""

import asyncio
import errno
import random
from collections.abc import Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from assignments_fixture import ONE, TWO, AssignmentsFixture, image_of, topic
from structlog.testing import capture_logs

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.assignments import ROOM_PER_STEP
from cordwood.cluster.broker.role_queue import COSTS, Urgency
from cordwood.cluster.metadata.cuts import Cut, CutPartition
from cordwood.cluster.metadata.image import MIN_ISR, NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage
from cordwood.storage.pins import NOT_PINNED, Pin
from cordwood.storage.types import NEVER_EXPIRES


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def with_a_log_that_cannot_be_opened(disk: SimulatedDisk, code: int) -> tuple[AssignmentsFixture, str]:
    path = AssignmentsFixture(disk).put_log_of("bad")
    disk.faults.refuse_opens(path, code=code)
    return AssignmentsFixture(disk), path


def test_a_log_on_a_broken_disk_takes_its_directory_offline_and_nothing_else(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker, _ = with_a_log_that_cannot_be_opened(disk, errno.EROFS)
        broker.follow("bad")
        broker.follow("bad", "good")
        assert [directory.is_offline for directory in broker.directories] == [True, False]
        assert (broker.serves("bad"), broker.serves("good")) == (False, True)

    run(story())


def test_a_log_that_cannot_be_opened_for_want_of_descriptors_costs_itself_alone(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker, _ = with_a_log_that_cannot_be_opened(disk, errno.EMFILE)
        broker.follow("bad")
        broker.follow("bad", "good")
        assert [directory.is_offline for directory in broker.directories] == [False, False]
        assert (broker.serves("bad"), broker.serves("good")) == (False, True)
        disk.faults.heal()
        broker.assignments.open_more(image_of("bad", "good"))
        assert broker.serves("bad")

    run(story())


def test_a_log_that_could_not_be_opened_is_no_orphan(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker, path = with_a_log_that_cannot_be_opened(disk, errno.EROFS)
        orphan = broker.put_log_of("deleted")
        broker = AssignmentsFixture(disk)
        broker.assignments.begin(image_of("bad"))
        while disk.exists(orphan):
            await asyncio.sleep(0)
        assert disk.exists(f"{path}/recovery")

    run(story())


def test_removing_a_topic_from_a_failing_disk_raises_nothing(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.follow("a", "b")
        broker.directories[0].flushed_offsets.mark(topic("a").id, 0)
        disk.faults.fail_next_write("/flushed")
        broker.follow("b")
        assert not broker.serves("a")
        assert broker.serves("b")

    run(story())


def test_an_unknown_config_value_costs_a_topic_nothing_but_a_line(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        poisoned = replace(topic("a"), configs={"retention.ms": "abc", MIN_ISR: "many"})
        image = replace(
            Image(), index=1, topics_by_name={poisoned.name: poisoned}, topics_by_id={poisoned.id: poisoned}
        )
        with capture_logs() as lines:
            broker.assignments.follow(Image(), image)
        assert broker.serves("a")
        assert [line["event"] for line in lines] == ["config.ignored"] * 2

    run(story())


def test_nothing_is_removed_for_the_sake_of_an_image_that_lacks_an_entry(disk: SimulatedDisk) -> None:
    async def story() -> None:
        kept = AssignmentsFixture(disk).put_log_of("newer")
        broker = AssignmentsFixture(disk)
        broker.assignments.begin(replace(image_of("a"), passed_over=1))
        for _ in range(100):
            await asyncio.sleep(0)
        assert disk.exists(f"{kept}/recovery")

    run(story())


OPENED_PER_STEP = ROOM_PER_STEP // COSTS[Urgency.IS_TO_BE_OPENED]
MANY = 3 * ROOM_PER_STEP
NOTHING = Image()
(ALONE,) = topic("a").partitions


def image_with(*topics: TopicImage) -> Image:
    by_name, by_id = {topic.name: topic for topic in topics}, {topic.id: topic for topic in topics}
    return replace(NOTHING, index=1, topics_by_name=by_name, topics_by_id=by_id)


def large(partition: PartitionImage = ALONE, **changes: Any) -> TopicImage:
    return replace(topic("large"), partitions=(partition,) * MANY, **changes)


def led_in_epoch(partition: PartitionImage, epoch: int) -> PartitionImage:
    return replace(partition, leader_epoch=epoch, partition_epoch=epoch)


async def held_after_each_step(broker: AssignmentsFixture) -> list[int]:
    counts = [len(list(broker.replicas))]
    for _ in range(2 * MANY // OPENED_PER_STEP):
        await asyncio.sleep(0)
        counts.append(len(list(broker.replicas)))
    return counts


def test_the_partitions_of_a_large_topic_are_opened_some_at_a_time(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.assignments.follow(NOTHING, image_with(large()))
        counts = await held_after_each_step(broker)
        opened = [after - before for before, after in pairwise([0, *counts])]
        assert 0 < opened[0] <= max(opened) <= OPENED_PER_STEP
        assert counts[-1] == MANY

    run(story())


def test_what_is_below_the_last_step_is_reported_once(disk: SimulatedDisk) -> None:
    async def story() -> None:
        held: list[int] = []
        broker = AssignmentsFixture(disk, on_caught_up=lambda: held.append(len(list(broker.replicas))))
        broker.assignments.follow(NOTHING, image_with(topic("a")))
        await held_after_each_step(broker)
        assert held == []
        broker.assignments.follow(image_with(topic("a")), image_with(topic("a"), large()))
        await held_after_each_step(broker)
        assert held == [MANY + 1]

    run(story())


def test_partitions_that_are_not_opened_yet_get_the_newest_role(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        first, second = (
            image_with(large()),
            image_with(large(led_in_epoch(ALONE, 5))),
        )
        broker.assignments.follow(NOTHING, first)
        broker.assignments.follow(first, second)
        await held_after_each_step(broker)
        assert [held.leader_epoch for held in broker.replicas] == [5] * MANY

    run(story())


def test_replicas_that_are_held_take_a_changed_role_some_at_a_time(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        fenced = replace(led_in_epoch(ALONE, 1), leader=NO_LEADER)
        first, second = (
            image_with(large()),
            image_with(large(fenced, configs={"retention.ms": "5"})),
        )
        broker.assignments.follow(NOTHING, first)
        await held_after_each_step(broker)
        broker.assignments.follow(first, second)
        counts = [without_leader(broker)]
        for _ in range(4):
            await asyncio.sleep(0)
            counts.append(without_leader(broker))
        taken = [after - before for before, after in pairwise([0, *counts])]
        assert 0 < taken[0] <= max(taken) <= ROOM_PER_STEP
        assert counts[-1] == MANY
        await held_after_each_step(broker)
        assert {held.log.config.retention_ms for held in broker.replicas} == {5}

    run(story())


def test_replicas_that_lead_from_now_on_take_their_role_first(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk, follow_leader=lambda _partition, _leader: None)
        followed = PartitionImage((TWO, ONE), (TWO, ONE), TWO)
        led = replace(led_in_epoch(followed, 1), leader=ONE, isr=(ONE,))
        elsewhere = replace(led_in_epoch(followed, 1), leader=NO_LEADER)
        other = topic("other")
        before = image_with(large(followed), replace(other, partitions=(followed,) * 3))
        broker.assignments.follow(NOTHING, before)
        await held_after_each_step(broker)
        broker.assignments.follow(
            before, image_with(large(elsewhere), replace(other, partitions=(led,) * 3), topic("new"))
        )
        assert [broker.serves("other", index) for index in range(3)] == [True] * 3
        assert without_leader(broker) < MANY
        assert not broker.serves("new")
        await held_after_each_step(broker)
        assert without_leader(broker) == MANY
        assert broker.serves("new")

    run(story())


@pytest.mark.parametrize(("shuts_down", "watched"), [(False, 0), (True, 1)])
def test_only_a_broker_that_has_returned_makes_leaders_look_at_their_followers(
    disk: SimulatedDisk, shuts_down: bool, watched: int
) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        led = PartitionImage((ONE, TWO), (ONE,), ONE)
        alive = BrokerImage(TWO, UUID(int=2), 2, (), is_fenced=False)
        gone = replace(alive, is_shutting_down=True)
        with_it, without_it = (
            replace(image_with(replace(topic("a"), partitions=(led,))), brokers={TWO: state}) for state in (alive, gone)
        )
        first, second = (without_it, with_it) if shuts_down else (with_it, without_it)
        broker.assignments.follow(NOTHING, first)
        await held_after_each_step(broker)
        (held,) = broker.replicas
        held.leader.follower_attached(TWO, 0, 0, 0.0)
        broker.wanted.clear()
        broker.assignments.follow(first, second)
        await held_after_each_step(broker)
        assert len(broker.wanted) == watched

    run(story())


def without_leader(broker: AssignmentsFixture) -> int:
    return sum(held.leader_id == NO_LEADER for held in broker.replicas)


@pytest.mark.parametrize("of_each", [1, 2])
def test_roles_in_many_topics_are_taken_some_at_a_time_and_the_newest(disk: SimulatedDisk, of_each: int) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        names = [f"t{number}" for number in range(MANY // of_each)]

        def image(partition: PartitionImage) -> Image:
            return image_with(*(replace(topic(name), partitions=(partition,) * of_each) for name in names))

        images = [NOTHING, image(ALONE), *(image(led_in_epoch(ALONE, epoch)) for epoch in (5, 6))]
        broker.assignments.follow(images[0], images[1])
        await held_after_each_step(broker)
        broker.assignments.follow(images[1], images[2])
        broker.assignments.follow(images[2], images[3])
        assert 0 < sum(held.leader_epoch == 5 for held in broker.replicas) <= ROOM_PER_STEP
        await held_after_each_step(broker)
        assert [held.leader_epoch for held in broker.replicas] == [6] * MANY

    run(story())


def test_a_topic_that_is_deleted_before_it_is_opened_leaves_nothing(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.assignments.follow(NOTHING, image_with(large()))
        broker.assignments.follow(image_with(large()), image_with(topic("a")))
        await held_after_each_step(broker)
        assert [held.topic for held in broker.replicas] == ["a"]

    run(story())


def test_nothing_is_opened_once_the_broker_stops(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.assignments.follow(NOTHING, image_with(large()))
        broker.assignments.close()
        opened = set(await held_after_each_step(broker))
        assert len(opened) == 1
        assert opened < set(range(1, OPENED_PER_STEP + 1))

    run(story())


def pinned_by(image: Image, *ranges: tuple[str, int, int]) -> Image:
    cuts = {
        f"cut-{number}": Cut(f"cut-{number}", 0, NEVER_EXPIRES, (CutPartition(topic(name).id, 0, start, end),))
        for number, (name, start, end) in enumerate(ranges)
    }
    return replace(image, cuts=cuts)


def test_cuts_pin_open_logs_and_logs_that_are_opened_later(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.follow("early")
        before, both = broker.image, image_of("early", "late")
        pinned = pinned_by(both, ("early", 5, 9), ("early", 3, 7), ("late", 0, 4))
        broker.assignments.follow(before, pinned)
        while (late := broker.replicas.get("late", 0)) is None:
            await asyncio.sleep(0)
        early = broker.replicas.get("early", 0)
        assert early is not None
        assert (early.log.pinned, late.log.pinned) == (Pin(3, 9), Pin(0, 4))
        broker.assignments.follow(pinned, pinned_by(both, ("early", 5, 9)))
        assert (early.log.pinned, late.log.pinned) == (Pin(5, 9), NOT_PINNED)

    run(story())


def test_a_log_is_pinned_before_the_start_is_over(disk: SimulatedDisk) -> None:
    async def story() -> None:
        broker = AssignmentsFixture(disk)
        broker.assignments.begin(pinned_by(image_of("one"), ("one", 0, 4)))
        held = broker.replicas.get("one", 0)
        assert held is not None
        assert held.log.pinned == Pin(0, 4)

    run(story())
