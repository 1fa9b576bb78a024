"""Any command results in an image or a refusal, and every metadata listener accepts the image."""

import asyncio
import random
from dataclasses import fields, is_dataclass
from enum import IntEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from assignments_fixture import AssignmentsFixture
from coordinator_fixture import CoordinatorFixture
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from metadata_scenario import MetadataScenario
from quorum_in_memory import MetadataLog

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.config.topic_configs import TOPIC_CONFIGS
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.command_codec import decode, encode
from cordwood.cluster.metadata.commands import BrokerId, Command
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.image import MIN_ISR, Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.quorum import attempt

IDS = tuple(UUID(int=number) for number in (1, 2, 3))
texts = st.one_of(st.sampled_from(["flights", "1", "2", "", "abc", "os", "9" * 30]), st.text(max_size=5))
config_keys = st.one_of(st.sampled_from([MIN_ISR, "retention.ms", "flush.policy", *TOPIC_CONFIGS]), texts)
numbers = st.one_of(st.integers(-1, 4), st.integers(-(1 << 63), (1 << 63) - 1))
brokers = st.one_of(st.integers(0, 3), st.integers(0, (1 << 31) - 1)).map(BrokerId)
acls = st.builds(
    Acl,
    st.builds(ResourcePattern, st.sampled_from(AclResource), texts, st.sampled_from(Pattern)),
    texts,
    texts,
    st.sampled_from(AclOperation),
    st.sampled_from(Permission),
)


def values_of(annotation: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Return a strategy for values of a declared type, mostly close to the values in the image."""
    plain = {
        int: numbers,
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: texts,
        bytes: st.binary(max_size=5),
        bool: st.booleans(),
        UUID: st.sampled_from(IDS),
        type(None): st.none(),
    }
    if name in ("key", "configs"):
        plain[str] = config_keys
    if annotation is Acl:
        return acls
    if annotation is BrokerId:
        return brokers
    if annotation in plain:
        return plain[annotation]
    if get_origin(annotation) in (Union, UnionType):
        return st.one_of(*(values_of(one, name) for one in get_args(annotation)))
    if get_origin(annotation) is tuple:
        rows = get_args(annotation)
        if rows[-1] is Ellipsis:
            return st.lists(values_of(rows[0], name), max_size=3).map(tuple)
        return st.tuples(*(values_of(row, name) for row in rows))
    if issubclass(annotation, IntEnum):
        return st.sampled_from(annotation)
    assert is_dataclass(annotation)
    return values_of_fields(annotation)


def values_of_fields(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, *(values_of(hints[known.name], known.name) for known in fields(kind)))


any_commands: st.SearchStrategy[Command] = st.one_of(*(values_of_fields(kind) for kind in get_args(Command)))


def applied(image: Image, command: Command) -> Image:
    builder = ImageBuilder(image)
    refusal = attempt(builder, decode(encode(command)), image.index + 1)
    assert refusal is None or refusal.code is not ErrorCode.unknown_server_error, refusal.message
    return builder.image()


@given(st.lists(any_commands, max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_commands_make_an_image_that_can_be_kept(commands: list[Command]) -> None:
    image = MetadataScenario().create(1, 2, 3).image
    for command in commands:
        image = applied(image, command)
    assert snapshot.decode(snapshot.encode(image)) == image


class Listeners:
    """All metadata listeners of broker 1."""

    def __init__(self) -> None:
        self.assignments = AssignmentsFixture(SimulatedDisk(random.Random(1)), lambda _partition, _leader: None)
        self.groups = CoordinatorFixture().coordinator
        self.event_log = MetadataEventLog(MetadataLog().voter(1), BrokerId(1))

    def follow(self, old: Image, new: Image) -> None:
        self.assignments.assignments.follow(old, new)
        self.groups.on_metadata_change(old, new)
        self.event_log.follow(old, new)


@given(st.lists(any_commands, max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_commands_are_followed_by_every_listener(commands: list[Command]) -> None:
    async def follow() -> None:
        listeners, image = Listeners(), MetadataScenario().create(1, 2, 3).image
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
        listeners.follow(Image(), image)
        for command in commands:
            before, image = image, applied(image, command)
            listeners.follow(before, image)
        await asyncio.sleep(0)
        assert failures == []

    asyncio.run(asyncio.wait_for(follow(), 30))
