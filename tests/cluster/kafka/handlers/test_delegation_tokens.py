"""Delegation tokens in every version: who may create, see, renew and expire them, and what each may not."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from admin_fixture import NOW_MS, AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from cordwood.cluster.kafka.handlers.create_delegation_token import TOKENS_MAX
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.metadata.commands import PutDelegationToken
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.principal import ANONYMOUS, NO_IDENTITY, Identity, Principal

KEY = "the secret of all brokers"
HOUR_MS = 3600 * 1000
DAY_MS, WEEK_MS = 24 * HOUR_MS, 7 * 24 * HOUR_MS
NEVER_MS = 0


class Allowed:
    """An authorizer that allows what the test lists."""

    def __init__(self) -> None:
        self.rights: set[tuple[str, AclOperation, AclResource, str]] = set()

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        return (str(identity.principal), operation, resource, name) in self.rights

    may_see = may

    def may_any(self, *_: Any) -> bool:
        return False

    def operations(self, *_: Any) -> int:
        return 0


class Tokens:
    """A broker with delegation tokens, and clients of several users."""

    def __init__(self, **settings: Any) -> None:
        self.admin = AdminFixture(**{"delegation_token_secret_key": KEY, **settings})
        self.authorizer = self.admin.services.authorizer = Allowed()
        self.now_ms = NOW_MS
        self.admin.services.wall_clock = lambda: self.now_ms
        self.admin.services.tokens._wall_clock = lambda: self.now_ms

    def ask(self, api: Any, user: str, version: int, identity: Identity | None = None, **fields: Any) -> Any:
        identity = identity or Identity(Principal("User", user), "10.0.0.9", "SCRAM-SHA-256")
        return self.admin.runner.run(self.admin.answer(api, version, identity=identity, **fields))

    def create(self, user: str = "alice", *renewers: str, version: int = 3, life_ms: int = -1, **fields: Any) -> Any:
        named = [{"principal_type": "User", "principal_name": name} for name in renewers]
        period = {"renewers": named, "max_lifetime": timedelta(milliseconds=life_ms)}
        return self.ask(create_delegation_token, user, version, **{**period, **fields})

    def renew(
        self, user: str, secret: bytes, period_ms: int = -1, version: int = 2, **rest: Any
    ) -> tuple[ErrorCode, int]:
        period = timedelta(milliseconds=period_ms)
        answer = self.ask(renew_delegation_token, user, version, hmac=secret, renew_period=period, **rest)
        return answer.error_code, ms_of(answer.expiry_timestamp)

    def expire(
        self, user: str, secret: bytes, period_ms: int = -1, version: int = 2, **rest: Any
    ) -> tuple[ErrorCode, int]:
        period = timedelta(milliseconds=period_ms)
        answer = self.ask(expire_delegation_token, user, version, hmac=secret, expiry_time_period=period, **rest)
        return answer.error_code, ms_of(answer.expiry_timestamp)

    def describe(self, user: str, *owners: str, version: int = 3) -> Any:
        """Return the tokens that a user sees; of all owners without `owners`."""
        named = [{"principal_type": "User", "principal_name": name} for name in owners] or None
        answer = self.ask(describe_delegation_token, user, version, owners=named)
        assert answer.error_code is ErrorCode.none
        return answer.tokens

    def seen(self, user: str, *owners: str) -> set[str]:
        return {token.token_id for token in self.describe(user, *owners)}


def ms_of(time: Any) -> int:
    return round(time.timestamp() * 1000)


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    story = Tokens()
    yield story
    story.admin.close()


@pytest.mark.parametrize("version", create_delegation_token.KEY.versions)
def test_every_version_creates_renews_describes_and_expires(tokens: Tokens, version: int) -> None:
    created = tokens.create("alice", "bob", version=version)
    assert created.error_code is ErrorCode.none
    assert (created.principal_type, created.principal_name) == ("User", "alice")
    times = created.issue_timestamp, created.expiry_timestamp, created.max_timestamp
    assert tuple(map(ms_of, times)) == (NOW_MS, NOW_MS + DAY_MS, NOW_MS + WEEK_MS)
    tokens.now_ms += HOUR_MS
    renewed_ms = tokens.now_ms + DAY_MS
    assert tokens.renew("bob", created.hmac, version=min(version, 2)) == (ErrorCode.none, renewed_ms)
    (shown,) = tokens.describe("alice", version=version)
    assert (shown.token_id, shown.hmac, shown.expiry_timestamp) == (created.token_id, created.hmac, renewed_ms)
    assert [renewer.principal_name for renewer in shown.renewers] == ["bob"]
    assert tokens.expire("alice", created.hmac, version=min(version, 2)) == (ErrorCode.none, tokens.now_ms)
    assert not tokens.admin.image.delegation_tokens


def test_a_secret_is_the_ids_hmac_and_is_nowhere_in_the_metadata(tokens: Tokens) -> None:
    created = tokens.create()
    expected = hmac.digest(KEY.encode(), created.token_id.encode(), hashlib.sha512)
    assert created.hmac == expected
    (token,) = tokens.admin.image.delegation_tokens.values()
    assert base64.b64encode(expected).decode() not in repr(token)
    assert repr(expected) not in repr(token)
    assert KEY not in repr(tokens.admin.settings)


def test_ids_are_not_repeated(tokens: Tokens) -> None:
    assert len({tokens.create().token_id for _ in range(20)}) == 20


def test_a_shorter_life_is_granted_and_a_longer_one_is_not(tokens: Tokens) -> None:
    short = tokens.create(life_ms=HOUR_MS)
    assert ms_of(short.max_timestamp) == ms_of(short.expiry_timestamp) == NOW_MS + HOUR_MS
    long = tokens.create(life_ms=2 * WEEK_MS)
    assert ms_of(long.max_timestamp) == NOW_MS + WEEK_MS
    assert tokens.renew("alice", short.hmac) == (ErrorCode.none, NOW_MS + HOUR_MS)
    assert tokens.renew("alice", long.hmac, 2 * WEEK_MS) == (ErrorCode.none, NOW_MS + DAY_MS)
    assert tokens.renew("alice", long.hmac, HOUR_MS) == (ErrorCode.none, NOW_MS + HOUR_MS)


@pytest.mark.parametrize(
    "identity",
    [
        NO_IDENTITY,
        Identity(ANONYMOUS, "10.0.0.9"),
        Identity(Principal("User", "alice"), "10.0.0.9", ""),
        Identity(Principal("User", "alice"), "10.0.0.9", "SCRAM-SHA-256", is_token=True),
    ],
    ids=["nobody", "anonymous", "without-proof", "by-token"],
)
def test_only_a_proof_other_than_a_token_counts(tokens: Tokens, identity: Identity) -> None:
    secret = tokens.create().hmac
    code = ErrorCode.delegation_token_request_not_allowed
    created = tokens.create(identity=identity)
    assert (created.error_code, created.token_id, created.hmac) == (code, "", b"")
    assert ms_of(created.expiry_timestamp) == NEVER_MS
    assert tokens.renew("", secret, identity=identity) == (code, NEVER_MS)
    assert tokens.expire("", secret, identity=identity) == (code, NEVER_MS)
    described = tokens.ask(describe_delegation_token, "", 3, identity, owners=None)
    assert (described.error_code, described.tokens) == (code, ())
    assert len(tokens.admin.image.delegation_tokens) == 1


def test_without_a_key_there_are_no_tokens() -> None:
    story = Tokens(delegation_token_secret_key="")
    code = ErrorCode.delegation_token_auth_disabled
    assert story.create().error_code is code
    assert story.renew("alice", b"x" * 64) == (code, NEVER_MS)
    assert story.expire("alice", b"x" * 64) == (code, NEVER_MS)
    assert story.ask(describe_delegation_token, "alice", 3, owners=None).error_code is code
    story.admin.close()


def test_a_token_for_another_owner_needs_the_right(tokens: Tokens) -> None:
    for_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    refused = tokens.create("alice", **for_bob)
    assert refused.error_code is ErrorCode.delegation_token_authorization_failed
    assert (refused.principal_name, refused.token_requester_principal_name, refused.hmac) == ("bob", "alice", b"")
    tokens.authorizer.rights.add(("User:alice", AclOperation.CREATE_TOKENS, AclResource.USER, "User:bob"))
    created = tokens.create("alice", **for_bob)
    assert created.error_code is ErrorCode.none
    assert (created.principal_name, created.token_requester_principal_name) == ("bob", "alice")
    assert tokens.seen("alice") == tokens.seen("bob") == {created.token_id}
    assert tokens.renew("alice", created.hmac)[0] is ErrorCode.delegation_token_owner_mismatch
    assert tokens.renew("bob", created.hmac)[0] is ErrorCode.none


@pytest.mark.parametrize(("kind", "name"), [("Group", "x"), ("", "x"), ("User", "a" * 256)])
def test_owners_and_renewers_are_users(tokens: Tokens, kind: str, name: str) -> None:
    renewers = [{"principal_type": kind, "principal_name": name}]
    assert tokens.create(renewers=renewers).error_code is ErrorCode.invalid_principal_type
    tokens.authorizer.rights.add(("User:alice", AclOperation.CREATE_TOKENS, AclResource.USER, f"{kind}:{name}"))
    answer = tokens.create(owner_principal_type=kind, owner_principal_name=name)
    assert answer.error_code is ErrorCode.invalid_principal_type
    assert not tokens.admin.image.delegation_tokens


def test_others_neither_renew_nor_expire_nor_see_a_token(tokens: Tokens) -> None:
    created = tokens.create("alice", "bob")
    mismatch = ErrorCode.delegation_token_owner_mismatch, NEVER_MS
    assert tokens.renew("mallory", created.hmac) == mismatch
    assert tokens.expire("mallory", created.hmac) == mismatch
    assert tokens.seen("mallory") == tokens.seen("mallory", "alice") == set()
    assert tokens.seen("alice", "mallory") == set(), "tokens that were not asked for are not shown"
    assert tokens.seen("bob") == tokens.seen("bob", "alice") == {created.token_id}


@pytest.mark.parametrize("right", ["the token", "its owner"])
def test_a_right_shows_the_tokens_of_others(tokens: Tokens, right: str) -> None:
    created = tokens.create("alice")
    on_token = AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, created.token_id
    on_owner = AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:alice"
    tokens.authorizer.rights.add(("User:eve", *(on_token if right == "the token" else on_owner)))
    other = tokens.create("bob")
    assert tokens.seen("eve") == {created.token_id}
    assert tokens.seen("eve", "bob") == set()
    assert tokens.seen("bob") == {other.token_id}


@pytest.mark.parametrize("secret", [b"", b"x" * 64, b"\x00" * 64])
def test_an_unknown_secret_finds_nothing(tokens: Tokens, secret: bytes) -> None:
    created = tokens.create()
    for wrong in (secret, created.hmac[:-1], created.hmac + b"\x00", created.token_id.encode()):
        assert tokens.renew("alice", wrong) == (ErrorCode.delegation_token_not_found, NEVER_MS)
        assert tokens.expire("alice", wrong) == (ErrorCode.delegation_token_not_found, NEVER_MS)


def test_a_removed_token_is_not_known_any_more(tokens: Tokens) -> None:
    gone, kept = tokens.create(), tokens.create()
    assert tokens.expire("alice", gone.hmac)[0] is ErrorCode.none
    assert tokens.renew("alice", gone.hmac) == (ErrorCode.delegation_token_not_found, NEVER_MS)
    assert tokens.expire("alice", gone.hmac) == (ErrorCode.delegation_token_not_found, NEVER_MS)
    assert tokens.renew("alice", kept.hmac)[0] is ErrorCode.none


def test_an_expired_token_cannot_come_back(tokens: Tokens) -> None:
    created = tokens.create()
    tokens.now_ms += DAY_MS - 1
    assert tokens.admin.services.tokens.valid(created.token_id) is not None
    tokens.now_ms += 1
    assert tokens.admin.services.tokens.valid(created.token_id) is None
    assert tokens.renew("alice", created.hmac) == (ErrorCode.delegation_token_expired, NEVER_MS)
    assert tokens.expire("alice", created.hmac, DAY_MS) == (ErrorCode.delegation_token_expired, NEVER_MS)


def test_a_session_by_a_token_ends_with_the_tokens_expiry(tokens: Tokens) -> None:
    created = tokens.create()
    for expires_ms in (NOW_MS + DAY_MS, NOW_MS + HOUR_MS):
        credential = tokens.admin.services.tokens.credential(created.token_id, ScramMechanism.SCRAM_SHA_256)
        assert credential is not None
        assert credential.expires_at_ms == expires_ms
        tokens.expire("alice", created.hmac, HOUR_MS)


def test_a_token_can_be_renewed_up_to_its_end_and_not_beyond(tokens: Tokens) -> None:
    created = tokens.create()
    for _ in range(6):
        tokens.now_ms += DAY_MS - 1
        assert tokens.renew("alice", created.hmac)[0] is ErrorCode.none
    tokens.now_ms += DAY_MS // 2
    assert tokens.renew("alice", created.hmac) == (ErrorCode.none, NOW_MS + WEEK_MS)
    tokens.now_ms = NOW_MS + WEEK_MS
    assert tokens.renew("alice", created.hmac) == (ErrorCode.delegation_token_expired, NEVER_MS)


def test_an_expiry_can_be_set(tokens: Tokens) -> None:
    created = tokens.create()
    assert tokens.expire("alice", created.hmac, 5000) == (ErrorCode.none, NOW_MS + 5000)
    assert tokens.expire("alice", created.hmac, 2 * WEEK_MS) == (ErrorCode.none, NOW_MS + WEEK_MS)
    assert tokens.expire("alice", created.hmac, 0) == (ErrorCode.none, NOW_MS)
    assert tokens.admin.services.tokens.valid(created.token_id) is None


def test_a_principal_has_a_bounded_number_of_tokens(tokens: Tokens) -> None:
    everyone = {
        str(number): token
        for number in range(TOKENS_MAX)
        for token in [PutDelegationToken(str(number), "User:bob", "User:alice", (), NOW_MS, NOW_MS + 1, NOW_MS + 1)]
    }
    full = tokens.admin.services.quorum
    object.__setattr__(full.image, "delegation_tokens", everyone)
    assert tokens.create("alice").error_code is ErrorCode.policy_violation
    assert tokens.create("bob").error_code is ErrorCode.none


def test_of_requests_at_the_same_time_each_answer_is_true(tokens: Tokens) -> None:
    secret = tokens.create("alice", "bob").hmac

    async def both() -> tuple[Any, Any]:
        alice, bob = (Identity(Principal("User", name), "", "SCRAM-SHA-256") for name in ("alice", "bob"))
        period = {"renew_period": timedelta(hours=1), "expiry_time_period": timedelta(milliseconds=-1)}
        renewing = tokens.admin.answer(renew_delegation_token, 2, identity=bob, hmac=secret, **period)
        expiring = tokens.admin.answer(expire_delegation_token, 2, identity=alice, hmac=secret, **period)
        return await asyncio.gather(renewing, expiring)

    renewed, expired = tokens.admin.runner.run(both())
    assert renewed.error_code in (ErrorCode.none, ErrorCode.delegation_token_not_found)
    assert expired.error_code is ErrorCode.none
    assert not tokens.admin.image.delegation_tokens, "an expiry that was confirmed is not undone by a renewal"
