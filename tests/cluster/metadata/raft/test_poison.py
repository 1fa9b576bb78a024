"""Invalid metadata entries of a stranger, a newer version or a bug stop no voter and no observer (ADR 24)."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from cordwood.chaos.sim.quorum import SimulatedQuorum, formed, run
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    BrokerId,
    Command,
    ConfigChange,
    CreateTopic,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    ResourceType,
    UnfenceBroker,
)
from cordwood.cluster.metadata.features import SUPPORTED
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.packed import pack
from cordwood.cluster.metadata.quorum import QuorumUnavailable
from cordwood.cluster.metadata.raft import entry
from cordwood.cluster.proposals.admission import admission

ONE, SEVEN = BrokerId(1), BrokerId(7)
FLIGHTS = CreateTopic(UUID(int=1), "flights", ((ONE,),))
POISON = AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("retention.ms", None, "abc"),))


def registration(broker: BrokerId, start: int = 1) -> RegisterBroker:
    return RegisterBroker(broker, UUID(int=start), (), levels=SUPPORTED)


async def with_a_topic(**options: Any) -> SimulatedQuorum:
    """Return three voters that check proposals for admission, and an observer."""
    quorum = SimulatedQuorum(**options)
    for voter in quorum.addresses:
        quorum.start(voter, admit=admission(Settings()))
    await quorum.formed()
    await quorum.propose(ONE, registration(ONE))
    await quorum.propose(ONE, FLIGHTS)
    quorum.observe(SEVEN)
    await quorum.formed(SEVEN)
    return quorum


async def is_taken(quorum: SimulatedQuorum, broker: int, command: Command) -> bool:
    try:
        await quorum.propose(broker, command)
    except QuorumUnavailable:
        return False
    return True


def append_as_leader(quorum: SimulatedQuorum, leader: int, command: bytes) -> None:
    """Append a command as a leader of a newer version does, without an admission check."""
    voter = quorum.quorums[leader]
    voter._node.append(entry.encode(quorum.rng.randbytes(8), voter.image.index, command))
    voter._ticker.wake()


def images(quorum: SimulatedQuorum) -> list[Image]:
    return [member.image for member in quorum._everyone.values()]


@pytest.mark.parametrize(
    "command",
    [
        POISON,
        AlterConfigs(ResourceType.BROKER, "", (ConfigChange("min.insync.replicas", None, "abc"),)),
        CreateTopic(UUID(int=2), "../../etc", ((ONE,),)),
        CreateTopic(UUID(int=2), "planes", ((ONE,),), (("flush.policy", "never"),)),
        CreateTopic(UUID(int=2), "planes", ()),
        AllocateProducerIds(SEVEN, 0, 1 << 62),
        AllocateProducerIds(ONE, 0, 1000),
        registration(ONE, 2),
        FenceBroker(ONE, 3),
        UnfenceBroker(SEVEN, 3),
        RegisterBroker(SEVEN, UUID(int=7), (Endpoint("PLAINTEXT", "h", 1 << 20),)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_proposal_that_a_handler_would_refuse_is_not_taken(command: Command) -> None:
    async def story() -> None:
        quorum = await with_a_topic()
        before = images(quorum)[0]
        assert not await is_taken(quorum, SEVEN, command)
        assert all(image.topics_by_id == before.topics_by_id for image in images(quorum))
        assert all(image.brokers == before.brokers for image in images(quorum))
        assert all(image.broker_configs == before.broker_configs for image in images(quorum))
        assert await is_taken(quorum, SEVEN, registration(SEVEN))
        assert quorum.failures == quorum.refusals == []

    run(story())


def test_an_entry_of_an_earlier_version_that_poisoned_its_voters_is_survived() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.propose(ONE, registration(ONE))
        await quorum.propose(ONE, FLIGHTS)
        await quorum.propose(2, POISON)
        quorum.power_cut(1, 2, 3)
        await quorum.start().formed()
        assert all(image.topics_by_name["flights"].configs["retention.ms"] == "abc" for image in images(quorum))
        await quorum.put(3, "a")
        assert quorum.failures == []

    run(story())


def test_an_entry_of_a_newer_version_is_passed_over_and_kept() -> None:
    async def story() -> None:
        quorum = await with_a_topic(snapshot_interval_bytes=2_000)
        leader = await quorum.leader()
        append_as_leader(quorum, leader, pack([99, "what"]))
        append_as_leader(quorum, leader, pack([12, 1, 1, "a field that is new"]))
        await quorum.put(leader, *(f"key {number}" for number in range(100)))
        await quorum.formed()
        passed_over = {image.passed_over for image in images(quorum)}
        assert len(passed_over) == 1
        index = passed_over.pop()
        for voter in quorum.quorums.values():
            assert voter._log.base_index < index, "a newer version has to find the entry again"
            assert voter._machine.whole.image.index < index
        quorum.power_cut(1, 2, 3)
        await quorum.start().formed()
        assert quorum.keys(1)[-1] == "key 99"
        assert quorum.failures == []

    run(story())


def test_a_voter_that_starts_after_an_entry_of_a_newer_version_has_it_too() -> None:
    async def story() -> None:
        quorum = await with_a_topic(snapshot_interval_bytes=2_000)
        leader = await quorum.leader()
        await quorum.put(leader, *(f"early {number}" for number in range(60)))
        append_as_leader(quorum, leader, pack([99, "what"]))
        await quorum.put(leader, *(f"late {number}" for number in range(60)))
        wiped = (await quorum.followers())[0]
        quorum.observe(8)
        quorum.wipe(wiped)
        quorum.start(wiped)
        await quorum.formed()
        assert len({image.passed_over for image in images(quorum)}) == 1
        assert all(image.broker_configs == images(quorum)[0].broker_configs for image in images(quorum))

    run(story())


def test_a_listener_that_fails_costs_its_voter_nothing_and_the_other_listeners_no_change() -> None:
    async def story() -> None:
        quorum = await formed()
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        followed: list[int] = []

        def fail(_old: Image, _new: Image) -> None:
            raise AssertionError("a rule is broken")

        quorum.quorums[2].subscribe(fail)
        quorum.quorums[2].subscribe(lambda _old, new: followed.append(new.index))
        image = await quorum.put(2, "a")
        assert followed[-1] == image.index
        assert [str(failure.__cause__) for failure in failures] == ["a rule is broken"]
        assert quorum.failures == []

    run(story())
