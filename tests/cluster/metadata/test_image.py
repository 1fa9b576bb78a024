"""Commands applied to an image: their effect, their repetition, and no change from a command that does not fit."""

from collections.abc import Sized
from dataclasses import replace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    BrokerId,
    Command,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    Endpoint,
    FormatCluster,
    RegisterBroker,
    ResourceType,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import CommandRefused, Image, by_id, by_name, changed_topics
from cordwood.cluster.metadata.image_builder import ImageBuilder, apply
from cordwood.cluster.metadata.image_delta import ImageDelta
from cordwood.cluster.metadata.persistent_map import BRANCHES, DEPTH_MAX, LEAF_MAX
from cordwood.storage.producers import FIRST_OF_ONE_BATCH

ONE, TWO = BrokerId(1), BrokerId(2)
FLIGHTS, OTHER = UUID(int=1), UUID(int=2)
START = UUID(int=100)


def register(broker: BrokerId, incarnation: UUID = START) -> RegisterBroker:
    return RegisterBroker(broker, incarnation, (Endpoint("PLAINTEXT", f"host-{broker}", 9092),))


def image_of(*commands: Command) -> Image:
    """Return the image of two unfenced brokers after these commands."""
    image = Image()
    alive = (register(ONE), register(TWO), UnfenceBroker(ONE, 1), UnfenceBroker(TWO, 2))
    for index, command in enumerate((*alive, *commands), 1):
        image = apply(image, command, index)
    return image


def create(topic_id: UUID = FLIGHTS, name: str = "flights", partitions: int = 2) -> CreateTopic:
    return CreateTopic(topic_id, name, ((ONE, TWO), (TWO, ONE))[:partitions])


def refused(image: Image, command: Command) -> ErrorCode:
    with pytest.raises(CommandRefused) as refusal:
        apply(image, command, image.index + 1)
    return refusal.value.code


def test_a_new_topic_is_led_by_the_first_replica_of_each_partition() -> None:
    image = image_of(create())
    topic = image.topics_by_name["flights"]
    assert topic is image.topics_by_id[FLIGHTS]
    assert [partition.leader for partition in topic.partitions] == [ONE, TWO]
    assert [partition.isr for partition in topic.partitions] == [(ONE, TWO), (TWO, ONE)]
    assert {(partition.leader_epoch, partition.partition_epoch) for partition in topic.partitions} == {(0, 0)}


@pytest.mark.parametrize(
    "command",
    [
        FormatCluster("name"),
        register(ONE),
        create(OTHER, "other"),
        CreatePartitions(FLIGHTS, 2, ((ONE, TWO),)),
        AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("retention.ms", None, "5"),)),
        AlterConfigs(ResourceType.BROKER, "1", (ConfigChange("flush.policy", None, "os"),)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_that_arrives_twice_does_what_it_does_once(command: Command) -> None:
    once = apply(image_of(create()), command, 10)
    assert apply(once, command, 10) == once


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (create(OTHER), ErrorCode.topic_already_exists),
        (create(FLIGHTS, "other"), ErrorCode.topic_already_exists),
        (CreateTopic(OTHER, "other", ((BrokerId(9),),)), ErrorCode.invalid_replica_assignment),
        (DeleteTopic(OTHER), ErrorCode.unknown_topic_id),
        (CreatePartitions(OTHER, 2, ((ONE,),)), ErrorCode.unknown_topic_id),
        (CreatePartitions(FLIGHTS, 1, ((ONE, TWO),)), ErrorCode.invalid_partitions),
        (CreatePartitions(FLIGHTS, 3, ((ONE, TWO),)), ErrorCode.invalid_partitions),
        (CreatePartitions(FLIGHTS, 2, ((BrokerId(9),),)), ErrorCode.invalid_replica_assignment),
        (AlterConfigs(ResourceType.TOPIC, "other", ()), ErrorCode.unknown_topic_or_partition),
        (AllocateProducerIds(ONE, 5, 1000), ErrorCode.invalid_update_version),
        (FormatCluster("another"), ErrorCode.inconsistent_cluster_id),
    ],
)
def test_a_command_that_does_not_fit_changes_nothing(command: Command, code: ErrorCode) -> None:
    image = image_of(FormatCluster("name"), create())
    before = (image, dict(image.topics_by_id), dict(image.brokers))
    assert refused(image, command) is code
    assert (image, dict(image.topics_by_id), dict(image.brokers)) == before


def test_producer_ids_are_given_out_up_to_the_last_one() -> None:
    image = image_of(create(), AllocateProducerIds(ONE, 0, FIRST_OF_ONE_BATCH - 10))
    assert refused(image, AllocateProducerIds(ONE, FIRST_OF_ONE_BATCH - 10, 11)) is ErrorCode.invalid_request
    assert refused(image, AllocateProducerIds(ONE, FIRST_OF_ONE_BATCH - 10, 0)) is ErrorCode.invalid_request
    last = AllocateProducerIds(ONE, FIRST_OF_ONE_BATCH - 10, 10)
    assert apply(image, last, 10).next_producer_id == FIRST_OF_ONE_BATCH


def test_a_late_deletion_spares_a_younger_topic_of_the_same_name() -> None:
    image = image_of(create(), DeleteTopic(FLIGHTS), create(OTHER))
    assert refused(image, DeleteTopic(FLIGHTS)) is ErrorCode.unknown_topic_id
    assert image.topics_by_name["flights"].id == OTHER


def test_partitions_that_another_request_has_added_are_not_those_of_this_one() -> None:
    image = image_of(create(), CreatePartitions(FLIGHTS, 2, ((TWO, ONE),)))
    assert refused(image, CreatePartitions(FLIGHTS, 2, ((ONE, TWO),))) is ErrorCode.invalid_partitions


def test_a_late_registration_does_not_replace_a_newer_one() -> None:
    image = image_of(create())
    late = RegisterBroker(ONE, UUID(int=77), (), expected_epoch=image.brokers[ONE].epoch - 1)
    assert refused(image, late) is ErrorCode.stale_broker_epoch
    new = RegisterBroker(BrokerId(9), UUID(int=78), (), expected_epoch=0)
    assert refused(image, new) is ErrorCode.stale_broker_epoch


def test_partitions_are_added_after_those_that_exist() -> None:
    image = image_of(create(), CreatePartitions(FLIGHTS, 2, ((TWO, ONE),)))
    assert [partition.replicas for partition in image.topics_by_id[FLIGHTS].partitions] == [
        (ONE, TWO),
        (TWO, ONE),
        (TWO, ONE),
    ]
    assert image.topics_by_name["flights"] is image.topics_by_id[FLIGHTS]


def test_a_config_is_changed_only_from_what_it_was_expected_to_be() -> None:
    change = AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("retention.ms", None, "5"),))
    image = image_of(create(), change)
    assert image.topics_by_name["flights"].configs == {"retention.ms": "5"}
    late = AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("retention.ms", None, "6"),))
    assert refused(image, late) is ErrorCode.invalid_update_version
    back = AlterConfigs(ResourceType.TOPIC, "flights", (ConfigChange("retention.ms", "5", None),))
    assert apply(image, back, 9).topics_by_name["flights"].configs == {}


def test_broker_configs_are_kept_for_one_and_for_all() -> None:
    image = image_of(
        AlterConfigs(ResourceType.BROKER, "1", (ConfigChange("flush.policy", None, "os"),)),
        AlterConfigs(ResourceType.BROKER, "", (ConfigChange("log.retention.ms", None, "7"),)),
    )
    assert image.configs_of_broker(1) == {"flush.policy": "os"}
    assert image.configs_of_broker(2) == {}
    assert image.configs_of_all_brokers == {"log.retention.ms": "7"}
    gone = apply(image, AlterConfigs(ResourceType.BROKER, "1", (ConfigChange("flush.policy", "os", None),)), 9)
    assert gone.broker_configs == {"": {"log.retention.ms": "7"}}


def test_producer_ids_are_handed_out_in_blocks_that_do_not_overlap() -> None:
    image = image_of(AllocateProducerIds(ONE, 0, 1000))
    assert image.next_producer_id == 1000
    assert refused(image, AllocateProducerIds(TWO, 0, 1000)) is ErrorCode.invalid_update_version
    assert apply(image, AllocateProducerIds(TWO, 1000, 1000), 9).next_producer_id == 2000


def test_a_broker_keeps_its_epoch_until_it_starts_anew() -> None:
    image = image_of(register(ONE))
    assert image.brokers[ONE].epoch == 1
    assert apply(image, register(ONE, UUID(int=101)), 9).brokers[ONE].epoch == 9


def test_a_broker_is_reached_by_the_listener_that_is_asked_for() -> None:
    broker = image_of().brokers[TWO]
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "host-2", 9092)
    assert broker.endpoint("LAN") is None


def test_old_images_stay_as_they_were() -> None:
    before = image_of(create())
    apply(before, create(OTHER, "other"), 9)
    apply(before, DeleteTopic(FLIGHTS), 9)
    assert list(before.topics_by_name) == ["flights"]
    assert list(before.topics_by_id) == [FLIGHTS]


def test_one_draft_takes_many_commands_and_counts_the_refused_ones() -> None:
    builder = ImageBuilder(image_of())
    builder.apply(create(), 3)
    with pytest.raises(CommandRefused):
        builder.apply(create(OTHER), 4)
    builder.apply(create(OTHER, "other"), 5)
    builder.apply(DeleteTopic(FLIGHTS), 6)
    with pytest.raises(CommandRefused):
        builder.apply(DeleteTopic(FLIGHTS), 7)
    image = builder.image()
    assert image.index == 7
    assert list(image.topics_by_name) == ["other"]


def test_the_topics_that_differ_are_named_as_they_were_and_are() -> None:
    old = image_of(create(), create(OTHER, "other"))
    assert list(changed_topics(old, old)) == []
    assert list(changed_topics(old, apply(old, register(ONE), 9))) == []
    grown = apply(old, CreatePartitions(FLIGHTS, 2, ((ONE, TWO),)), 9)
    new = apply(apply(grown, DeleteTopic(OTHER), 10), create(UUID(int=3), "third"), 11)
    differing = [(a and a.name, b and b.name, b and len(b.partitions)) for a, b in changed_topics(old, new)]
    assert differing == [("flights", "flights", 3), ("other", None, None), (None, "third", 2)]


def acl(principal: str) -> Acl:
    on = ResourcePattern(AclResource.TOPIC, "flights", Pattern.LITERAL)
    return Acl(on, principal, "*", AclOperation.READ, Permission.ALLOW)


def test_an_acl_that_is_there_already_is_let_be() -> None:
    first, second, third = UUID(int=1), UUID(int=2), UUID(int=3)
    alice, bob = acl("User:alice"), acl("User:bob")
    image = image_of(CreateAcls(((first, alice),)), CreateAcls(((second, alice), (third, bob))))
    assert image.acls == {first: alice, third: bob}


def test_acls_are_deleted_by_id_and_a_late_command_spares_those_created_alike_since() -> None:
    first, second = UUID(int=1), UUID(int=2)
    again = CreateAcls(((second, acl("User:alice")),))
    deletion = DeleteAcls((first,))
    image = image_of(CreateAcls(((first, acl("User:alice")),)), deletion, again, deletion)
    assert image.acls == {second: acl("User:alice")}


@pytest.mark.parametrize("topics", [1000, 10_000])
def test_a_change_of_one_topic_shares_the_rest_of_the_image(topics: int) -> None:
    builder = ImageBuilder(image_of())
    for number in range(topics):
        builder.apply(create(UUID(int=number + 1), f"topic-{number}"), 10 + number)
    before = builder.image()
    change = ConfigChange("retention.ms", None, "1")
    after = apply(before, AlterConfigs(ResourceType.TOPIC, "topic-7", (change,)), before.index + 1)
    shared = set(map(id, parts_of(before)))
    assert sum(len(part) for part in parts_of(after) if id(part) not in shared) <= 2 * (LEAF_MAX + DEPTH_MAX * BRANCHES)
    assert [is_now for _, is_now in changed_topics(before, after)] == [after.topics_by_name["topic-7"]]


def parts_of(image: Image) -> list[Sized]:
    """Return the nodes of the persistent maps of topics."""
    found: list[Sized] = []
    unvisited = [by_name(image.topics_by_name)._root, by_id(image.topics_by_id)._root]
    while unvisited:
        found.append(node := unvisited.pop())
        if isinstance(node, tuple):
            unvisited += node
    return found


def test_topics_that_are_deleted_and_created_again_under_their_name_are_two_changes() -> None:
    before = image_of(create())
    builder = ImageBuilder(before)
    builder.apply(DeleteTopic(FLIGHTS), 8)
    builder.apply(create(OTHER, "flights"), 9)
    builder.apply(create(FLIGHTS, "trains"), 10)
    after = builder.image()
    assert {topic.name: topic.id for topic in after.topics_by_id.values()} == {"flights": OTHER, "trains": FLIGHTS}
    assert {name: topic.id for name, topic in after.topics_by_name.items()} == {"flights": OTHER, "trains": FLIGHTS}
    changes = [(was and was.id, is_now and is_now.id) for was, is_now in changed_topics(before, after)]
    assert sorted(changes, key=str) == sorted([(FLIGHTS, None), (None, OTHER), (None, FLIGHTS)], key=str)


def test_a_refused_command_takes_back_all_its_changes_of_topics() -> None:
    image = image_of(create())
    topic, delta = image.topics_by_id[FLIGHTS], ImageDelta(image)
    delta.put_topic(replace(topic, configs={"retention.ms": "1"}))
    before = delta.topic(FLIGHTS)
    delta.mark()
    delta.put_topic(replace(topic, configs={"retention.ms": "2"}))
    delta.put_topic(replace(topic, configs={"retention.ms": "3"}))
    delta.put_topic(replace(topic, id=OTHER, name="other"))
    delta.undo()
    assert (delta.topic(FLIGHTS), delta.topic_named("flights")) == (before, before)
    assert (delta.topic(OTHER), delta.topic_named("other")) == (None, None)


def test_a_partition_is_elsewhere_for_brokers_without_a_replica() -> None:
    image = image_of(CreateTopic(FLIGHTS, "flights", ((ONE,), (ONE, TWO))))
    found = {
        (topic, index): (image.is_elsewhere(topic, index, ONE), image.is_elsewhere(topic, index, TWO))
        for topic, index in (("flights", 0), ("flights", 1), ("flights", 2), ("flights", -1), ("none", 0))
    }
    nowhere = (False, False)
    assert found == {
        ("flights", 0): (False, True),
        ("flights", 1): nowhere,
        ("flights", 2): nowhere,
        ("flights", -1): nowhere,
        ("none", 0): nowhere,
    }
