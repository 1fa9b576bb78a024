"""AlterUserScramCredentials and DescribeUserScramCredentials: Kafka's codes, and no secret in any answer."""

import hashlib
from typing import Any

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_user_scram_credentials as alter
from cordwood.cluster.kafka.handlers import describe_user_scram_credentials as describe
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.sasl.scram_keys import HASHES, is_password_of

SHA_256, SHA_512 = (int(kind) for kind in ScramMechanism)
TWICE = "A user credential cannot be altered twice in the same request"


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"salted password",
        **changes,
    }


def deletion(name: str, mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def altered(admin: AdminFixture, *upsertions: dict[str, Any], deletions: Any = ()) -> dict[str, tuple[Any, Any]]:
    response = admin.ask(alter, 0, deletions=deletions, upsertions=upsertions)
    assert len({result.user for result in response.results}) == len(response.results)
    return {result.user: (result.error_code, result.error_message) for result in response.results}


def described(admin: AdminFixture, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] if names else None
    response = admin.ask(describe, 0, users=users)
    assert response.error_code is ErrorCode.none
    return {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        if one.error_code is ErrorCode.none
        else one.error_code
        for one in response.results
    }


def test_credentials_are_set_replaced_and_removed(admin: AdminFixture) -> None:
    assert altered(admin, upsertion("bob"), upsertion("alice", SHA_512, 8192)) == {
        "bob": (ErrorCode.none, None),
        "alice": (ErrorCode.none, None),
    }
    altered(admin, upsertion("alice"))
    altered(admin, upsertion("bob", iterations=16384))
    assert described(admin) == {"alice": [(SHA_256, 4096), (SHA_512, 8192)], "bob": [(SHA_256, 16384)]}
    assert altered(admin, deletions=[deletion("alice")]) == {"alice": (ErrorCode.none, None)}
    assert described(admin, "alice") == {"alice": [(SHA_512, 8192)]}


@pytest.mark.parametrize("kind", ScramMechanism)
def test_the_password_is_accepted_and_not_stored(admin: AdminFixture, kind: ScramMechanism) -> None:
    salted = hashlib.pbkdf2_hmac(HASHES[kind], b"secret", b"salt", 4096)
    altered(admin, upsertion("alice", int(kind), salted_password=salted))
    credential = admin.image.scram_credentials["alice", kind]
    assert is_password_of("secret", credential, kind)
    assert salted not in (credential.stored_key, credential.server_key)
    assert "key" not in repr(credential)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"iterations": 4095}, ErrorCode.unacceptable_credential, "Too few iterations"),
        ({"iterations": -1}, ErrorCode.unacceptable_credential, "Too few iterations"),
        ({"iterations": 16385}, ErrorCode.unacceptable_credential, "Too many iterations"),
        ({"mechanism": 0}, ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        ({"mechanism": 3}, ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        ({"name": ""}, ErrorCode.unacceptable_credential, "Username must not be empty"),
        ({"name": "x" * 1025}, ErrorCode.unacceptable_credential, "Username must not be longer than 1024 bytes"),
        ({"salt": b""}, ErrorCode.unacceptable_credential, "A salt has 1 to 1024 bytes"),
        ({"salt": b"x" * 1025}, ErrorCode.unacceptable_credential, "A salt has 1 to 1024 bytes"),
        ({"salted_password": b""}, ErrorCode.unacceptable_credential, "The salted password must not be empty"),
    ],
)
def test_an_unacceptable_credential_is_refused_alone(
    admin: AdminFixture, changes: dict[str, Any], code: ErrorCode, said: str
) -> None:
    refused = {**upsertion("eve"), **changes}
    assert altered(admin, refused, upsertion("alice")) == {
        refused["name"]: (code, said),
        "alice": (ErrorCode.none, None),
    }
    assert described(admin) == {"alice": [(SHA_256, 4096)]}


def test_one_user_twice_in_a_request_is_refused(admin: AdminFixture) -> None:
    altered(admin, upsertion("alice"))
    for upsertions, deletions in (
        ((upsertion("alice"), upsertion("alice", SHA_512)), ()),
        ((upsertion("alice"),), (deletion("alice"),)),
        ((), (deletion("alice"), deletion("alice"))),
        ((), (deletion("alice"), deletion("alice"), deletion("alice"))),
    ):
        found = altered(admin, *upsertions, upsertion("bob"), deletions=deletions)
        assert found == {"alice": (ErrorCode.duplicate_resource, TWICE), "bob": (ErrorCode.none, None)}
    assert described(admin, "alice") == {"alice": [(SHA_256, 4096)]}


def test_a_missing_credential_cannot_be_removed(admin: AdminFixture) -> None:
    altered(admin, upsertion("alice"))
    found = altered(admin, deletions=[deletion("alice", SHA_512), deletion("nobody"), deletion("", 9)])
    missing = "Attempt to delete a user credential that does not exist"
    assert found == {
        "alice": (ErrorCode.resource_not_found, missing),
        "nobody": (ErrorCode.resource_not_found, missing),
        "": (ErrorCode.unacceptable_credential, "Username must not be empty"),
    }


def test_descriptions_have_kafkas_errors(admin: AdminFixture) -> None:
    assert described(admin) == {}
    altered(admin, upsertion("alice"))
    assert described(admin, "alice", "nobody", "bob", "bob") == {
        "alice": [(SHA_256, 4096)],
        "nobody": ErrorCode.resource_not_found,
        "bob": ErrorCode.duplicate_resource,
    }
