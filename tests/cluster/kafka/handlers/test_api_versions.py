"""ApiVersions: the served APIs, the features, and a version that the broker does not know."""

from typing import Any

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import api_versions as handler
from cordwood.cluster.kafka.registry import served_apis


def ask(admin: AdminFixture, version: int, name: str = "client", of: str = "1.0-rc.2") -> Any:
    admin.services.served_apis = served_apis()
    return admin.ask(handler, version, client_software_name=name, client_software_version=of)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_every_version_has_all_served_apis(admin: AdminFixture, version: int) -> None:
    answer = ask(admin, version)
    assert answer.error_code is ErrorCode.none
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [*served_apis()]


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("version", [3, 4])
def test_features_are_announced_with_their_levels(version: int, level: int) -> None:
    admin = AdminFixture(level=level)
    answer = ask(admin, version)
    finalized = [(f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features]
    others = [("transaction.version", 2, 2), ("group.version", 1, 1), ("share.version", 1, 1)]
    assert finalized == [("metadata.version", level, level), *others]
    assert answer.finalized_features_epoch == admin.image.index >= 0
    supported = [(f.name, f.min_version, f.max_version) for f in answer.supported_features]
    # Old clients fail on a supported feature that begins at level 0 (KAFKA-17011).
    from_0 = [("transaction.version", 0, 2), ("group.version", 0, 1), ("share.version", 0, 1)]
    assert supported == [("metadata.version", 1, 3), *(from_0 if version >= 4 else ())]
    admin.close()


def test_the_epoch_of_the_features_rises_with_the_metadata(admin: AdminFixture) -> None:
    before = ask(admin, 4).finalized_features_epoch
    admin.fence(1)
    assert ask(admin, 4).finalized_features_epoch > before


@pytest.mark.parametrize("text", ["", "a b", "-a", "a.", "a\n", "café", "a/1", "a" * 30_000 + "!"])
@pytest.mark.parametrize("version", [3, 4])
def test_names_of_software_have_kafkas_characters(admin: AdminFixture, version: int, text: str) -> None:
    for answer in (ask(admin, version, name=text), ask(admin, version, of=text)):
        assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())


@pytest.mark.parametrize("text", ["a", "7", "apache-kafka-java", "librdkafka-2.6.1", "A--..--9"])
def test_names_of_real_software_are_accepted(admin: AdminFixture, text: str) -> None:
    for answer in (ask(admin, 4, name=text), ask(admin, 4, of=text)):
        assert answer.error_code is ErrorCode.none
