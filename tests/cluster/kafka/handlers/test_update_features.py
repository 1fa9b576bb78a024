"""UpdateFeatures: the level of metadata.version rises once every broker supports it, and never goes back."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import update_features as handler
from cordwood.cluster.metadata.features import METADATA_VERSION, Levels

UPGRADE, SAFE, UNSAFE = 1, 2, 3
OLD, NEW = Levels(1, 1), Levels(1, 2)


class Answers:
    """The levels that brokers answer with. `then` is what happens before the proposal."""

    def __init__(self, *levels: Levels | None) -> None:
        self.levels = dict(enumerate(levels, 1))
        self.then: Any = None

    async def ask(self, broker_ids: Iterable[int]) -> dict[int, Levels | None]:
        levels = {broker_id: self.levels[broker_id] for broker_id in broker_ids}
        if self.then is not None:
            await self.then
        return levels


@pytest.fixture
def three() -> Iterator[AdminFixture]:
    """Three brokers of this release in a cluster that release 0.1 has founded."""
    fixture = AdminFixture(3, level=1)
    answering(fixture, NEW, NEW, NEW)
    yield fixture
    fixture.close()


def answering(admin: AdminFixture, *levels: Levels | None) -> Answers:
    answers = Answers(*levels)
    admin.services.levels = cast(Any, answers)
    return answers


def update(admin: AdminFixture, level: int, version: int = 2, *, kind: int = UPGRADE, **fields: Any) -> Any:
    change = {"feature": fields.pop("feature", METADATA_VERSION), "max_version_level": level}
    change |= {"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}
    return admin.ask(handler, version, feature_updates=[change], **fields)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_every_version_finalizes_a_level(three: AdminFixture, version: int) -> None:
    answer = update(three, 2, version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert [row.error_code for row in getattr(answer, "results", ())] == [ErrorCode.none] * (version < 2)
    assert three.image.metadata_version == 2


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_only_validated_changes_nothing(three: AdminFixture, version: int) -> None:
    assert update(three, 2, version, validate_only=True).error_code is ErrorCode.none
    assert three.image.metadata_version == 1
    assert update(three, 3, version, validate_only=True).error_code is ErrorCode.invalid_update_version


def test_the_level_that_is_finalized_already_is_no_change(three: AdminFixture) -> None:
    before = three.image.index
    assert update(three, 1).error_code is ErrorCode.none
    assert three.image.index == before


@pytest.mark.parametrize(
    ("level", "kind", "feature", "reason"),
    [
        (3, UPGRADE, METADATA_VERSION, "Broker 1 only supports versions 1-2."),
        (-1, UPGRADE, METADATA_VERSION, "A feature version cannot be less than 0."),
        (2, 0, METADATA_VERSION, "The controller does not support the given upgrade type."),
        (2, 9, METADATA_VERSION, "The controller does not support the given upgrade type."),
        (2, SAFE, METADATA_VERSION, "Can't downgrade to a newer version."),
        (0, UNSAFE, METADATA_VERSION, "Broker 1 only supports versions 1-2."),
        (3, UPGRADE, "transaction.version", "The cluster only supports versions 0-2."),
        (1, SAFE, "transaction.version", "This feature cannot be downgraded"),
        (1, UPGRADE, "kraft.version", "The cluster does not support this feature."),
    ],
)
def test_another_update_is_refused_with_a_sentence(
    three: AdminFixture, level: int, kind: int, feature: str, reason: str
) -> None:
    answer = update(three, level, kind=kind, feature=feature)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert answer.error_message.startswith(f"Invalid update version {level} for feature {feature}. {reason}")
    assert three.image.metadata_version == 1


@pytest.mark.parametrize(
    ("kind", "reason"), [(UPGRADE, "without setting the upgrade type"), (SAFE, "cannot be"), (UNSAFE, "cannot be")]
)
@pytest.mark.parametrize("version", handler.KEY.versions)
def test_the_level_never_goes_back(three: AdminFixture, version: int, kind: int, reason: str) -> None:
    update(three, 2)
    answer = update(three, 1, version, kind=kind)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert (reason if version else "without setting the upgrade type") in answer.error_message
    assert three.image.metadata_version == 2


def test_a_broker_of_the_old_release_is_named(three: AdminFixture) -> None:
    answering(three, NEW, OLD, NEW)
    answer = update(three, 2)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert answer.error_message == (
        "Invalid update version 2 for feature metadata.version. Broker 2 only supports versions 1."
    )


def test_a_broker_that_is_stopped_is_named(three: AdminFixture) -> None:
    answering(three, NEW, NEW, None)
    answer = update(three, 2)
    assert answer.error_code is ErrorCode.feature_update_failed
    assert "Broker 3 does not answer" in answer.error_message
    assert three.image.metadata_version == 1


def test_a_broker_that_restarts_after_its_answer_may_run_the_old_release(three: AdminFixture) -> None:
    answers = answering(three, NEW, NEW, NEW)
    answers.then = three.voter.propose(three.registration(2, start=9))
    answer = update(three, 2)
    assert answer.error_code is ErrorCode.feature_update_failed
    assert "A broker has started" in answer.error_message
    assert three.image.metadata_version == 1


def test_updates_are_done_together_or_not_at_all(three: AdminFixture) -> None:
    changes = [
        {"feature": name, "max_version_level": 2, "upgrade_type": UPGRADE} for name in (METADATA_VERSION, "unknown")
    ]
    answer = three.ask(handler, 1, feature_updates=changes)
    assert [row.error_code for row in answer.results] == [ErrorCode.invalid_update_version] * 2
    assert three.image.metadata_version == 1
