"""Feature levels in the metadata: what they allow, and which brokers they admit."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas
from cordwood.cluster.metadata.command_codec import decode, encode
from cordwood.cluster.metadata.commands import AddVoter, BrokerId, Command, FormatCluster, RegisterBroker, level_of
from cordwood.cluster.metadata.features import METADATA_VERSION, OF_FIRST_RELEASE, SUPPORTED, Levels, UpdateFeatures
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.image_builder import apply
from cordwood.cluster.metadata.packed import unpack
from cordwood.cluster.metadata.proposers import check_level

ONE, TWO = BrokerId(1), BrokerId(2)


def after(*commands: Command, image: Image | None = None) -> Image:
    image = image or Image()
    for command in commands:
        image = apply(image, command, image.index + 1)
    return image


def registration(broker: BrokerId, levels: Levels = OF_FIRST_RELEASE, start: int = 1) -> RegisterBroker:
    return RegisterBroker(broker, UUID(int=start), (), levels=levels)


def upgrade(image: Image, level: int, name: str = METADATA_VERSION, **fields: Any) -> UpdateFeatures:
    """Return the update that all brokers of the image were asked about."""
    brokers = tuple((broker.id, broker.epoch) for broker in image.brokers.values())
    return UpdateFeatures(((name, level),), fields.get("brokers", brokers))


@pytest.fixture
def old() -> Image:
    """A cluster of release 0.1."""
    return after(FormatCluster("cluster"), registration(ONE), registration(TWO))


def test_a_new_cluster_has_its_level_from_the_beginning() -> None:
    assert after(FormatCluster("cluster")).metadata_version == 1
    founded = after(FormatCluster("cluster", 2))
    assert founded.metadata_version == 2
    assert after(FormatCluster("cluster", 9), image=founded).metadata_version == 2


def test_a_command_of_a_later_level_waits_for_it(old: Image) -> None:
    quotas, voter = AlterClientQuotas(()), AddVoter(ONE, "id", "host", 1)
    for command in (quotas, voter):
        assert level_of(command) == 2
        with pytest.raises(CommandRefused, match=r"version is 1, and this needs 2.* `cordwood feature upgrade`"):
            check_level(command, old)
        with pytest.raises(CommandRefused) as refused:
            after(command, image=old)
        assert refused.value.code is ErrorCode.unsupported_version
    after(upgrade(old, 2), quotas, image=old)


def test_the_levels_of_a_broker_wait_for_it_too(old: Image) -> None:
    """Release 0.1 cannot read a registration with levels."""
    assert level_of(registration(ONE)) == 1
    assert level_of(registration(ONE, SUPPORTED)) == 2
    with pytest.raises(CommandRefused, match=r"metadata.version is 1, and this needs 2"):
        after(registration(ONE, SUPPORTED), image=old)


def test_a_broker_registers_with_its_levels(old: Image) -> None:
    new = after(upgrade(old, 2), registration(ONE, SUPPORTED, start=2), image=old)
    assert new.brokers[ONE].levels == SUPPORTED
    assert new.brokers[TWO].levels == OF_FIRST_RELEASE
    assert snapshot.decode(snapshot.encode(new)) == new


@pytest.mark.parametrize("levels", [OF_FIRST_RELEASE, Levels(3, 4)])
def test_a_broker_of_other_levels_cannot_register(old: Image, levels: Levels) -> None:
    new = after(upgrade(old, 2), image=old)
    with pytest.raises(CommandRefused, match=r"broker 2 supports metadata.version .*, and the cluster has finalized 2"):
        after(registration(TWO, levels, start=2), image=new)


def test_a_level_of_a_later_release_is_applied_alike(old: Image) -> None:
    """All releases must agree on the metadata: a broker that is too old does not refuse, but leaves the cluster."""
    assert after(upgrade(old, 7), image=old).metadata_version == 7


def test_the_level_never_goes_back(old: Image) -> None:
    new = after(upgrade(old, 3), image=old)
    with pytest.raises(CommandRefused) as refused:
        after(upgrade(new, 2), image=new)
    assert refused.value.code is ErrorCode.invalid_update_version


@pytest.mark.parametrize(("name", "level"), [(METADATA_VERSION, 0), (METADATA_VERSION, 1 << 15), ("other.version", 1)])
def test_a_level_that_does_not_exist_is_refused(old: Image, name: str, level: int) -> None:
    with pytest.raises(CommandRefused, match="cannot run"):
        after(upgrade(old, level, name), image=old)


def test_an_update_counts_only_for_the_brokers_that_were_asked(old: Image) -> None:
    first, second = ((broker.id, broker.epoch) for broker in old.brokers.values())
    for asked in ((), (first,), (first, (TWO, second[1] + 1)), (first, second, (9, 9))):
        with pytest.raises(CommandRefused, match="A broker has started"):
            after(upgrade(old, 2, brokers=asked), image=old)
    restarted = after(registration(TWO, start=2), image=old)
    with pytest.raises(CommandRefused, match="A broker has started"):
        after(upgrade(old, 2), image=restarted)
    assert after(upgrade(old, 2, brokers=(second, first)), image=old).metadata_version == 2


def test_what_level_1_writes_is_read_by_release_0_1(old: Image) -> None:
    assert decode(encode(registration(ONE))) == registration(ONE)
    assert unpack(encode(registration(ONE))) == (2, 1, UUID(int=1), ())
    assert unpack(snapshot.encode(old))[0] == 4
