"""Delegation tokens of others, expired ones, and changes of a token by strangers."""

import base64
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from closed_cluster import OWNER, SECRETS
from kio.schema.errors import ErrorCode

from attempts.attempt import Attempt, Audited, Port, Send, Stranger, refusal_of
from attempts.exchanges import kafka, with_client
from cordwood.cluster.kafka.api_keys import ApiKey


def _token_of_owner(stranger: Stranger, max_lifetime: timedelta = timedelta(hours=1)) -> Any:
    with stranger.kafka() as client:
        client.scram(OWNER, SECRETS[OWNER])
        made = client.ask(
            ApiKey.CREATE_DELEGATION_TOKEN,
            3,
            owner_principal_type="",
            owner_principal_name="",
            max_lifetime=max_lifetime,
        )
    assert made.error_code is ErrorCode.none
    return made


def _with_secret(made: Any) -> str:
    return base64.b64encode(made.hmac).decode()


def _attempts() -> Iterator[Attempt]:
    def with_token(extensions: str, secret: Callable[[Any, Any], str], lifetime: timedelta) -> Send:
        def send(stranger: Stranger) -> str:
            made, other = _token_of_owner(stranger, lifetime), _token_of_owner(stranger)
            time.sleep(max(0.0, made.expiry_timestamp.timestamp() - time.time() + 0.01) if lifetime < HOUR else 0)
            with stranger.kafka() as client:
                return refusal_of(lambda: client.scram(made.token_id, secret(made, other), extensions))

        return send

    no_such = "there is no such user"
    yield kafka(
        "a delegation token with the secret of another",
        with_token(",tokenauth=true", lambda _, other: _with_secret(other), HOUR),
        "the password is wrong",
    )
    yield kafka(
        "an expired delegation token",
        with_token(",tokenauth=true", lambda made, _: _with_secret(made), timedelta(milliseconds=1)),
        no_such,
    )
    yield kafka(
        "a delegation token as a password",
        with_token("", lambda made, _: _with_secret(made), HOUR),
        no_such,
    )
    yield kafka(
        "a user in place of a delegation token",
        with_client(lambda client: client.scram(OWNER, SECRETS[OWNER], ",tokenauth=true")),
        no_such,
    )
    for api, period in (
        (ApiKey.RENEW_DELEGATION_TOKEN, "renew_period"),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, "expiry_time_period"),
    ):
        mismatch = ErrorCode.delegation_token_owner_mismatch.name.upper()
        yield Attempt(
            f"{api.name} by a stranger", Port.KAFKA, _by_stranger(api, period), mismatch, Audited(api.name, mismatch)
        )
        not_allowed = ErrorCode.delegation_token_request_not_allowed.name.upper()
        yield Attempt(
            f"{api.name} by the token itself",
            Port.KAFKA,
            _by_itself(api, period),
            not_allowed,
            Audited(api.name, not_allowed, f"User:{OWNER}"),
        )


HOUR = timedelta(hours=1)


def _by_stranger(api: ApiKey, period: str) -> Send:
    def send(stranger: Stranger) -> str:
        made = _token_of_owner(stranger)
        with stranger.as_user("eve") as client:
            answer = client.ask(api, 2, hmac=made.hmac, **{period: HOUR})
        return ErrorCode(answer.error_code).name.upper()

    return send


def _by_itself(api: ApiKey, period: str) -> Send:
    def send(stranger: Stranger) -> str:
        made = _token_of_owner(stranger)
        with stranger.kafka() as client:
            client.scram(made.token_id, _with_secret(made), ",tokenauth=true")
            answer = client.ask(api, 2, hmac=made.hmac, **{period: HOUR})
        return ErrorCode(answer.error_code).name.upper()

    return send


TOKENS = tuple(_attempts())
