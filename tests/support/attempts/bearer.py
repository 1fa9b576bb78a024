"""SASL OAUTHBEARER with forged tokens, and tokens of others."""

from collections.abc import Iterator

from closed_cluster import valid_token
from sasl_client import SaslClient

from attempts.attempt import Attempt
from attempts.exchanges import bearer, kafka, with_client
from attempts.forged_tokens import FORGED, expired


def _second_token(client: SaslClient) -> None:
    refused, valid = (f"n,,\x01auth=Bearer {one}\x01\x01".encode() for one in (expired(), valid_token("eve")))
    client.authenticate("OAUTHBEARER", refused)
    client.step(valid)


def _attempts() -> Iterator[Attempt]:
    for name, (make, reason) in FORGED.items():
        yield kafka(f"OAUTHBEARER: {name}", bearer(make), reason)
    yield kafka(
        "OAUTHBEARER: the authorization id of another",
        with_client(
            lambda client: client.authenticate(
                "OAUTHBEARER", f"n,a=admin,\x01auth=Bearer {valid_token('eve')}\x01\x01".encode()
            )
        ),
        "authorization id",
        principal="User:eve",
    )
    yield kafka(
        "OAUTHBEARER: a second token after a refusal",
        with_client(_second_token),
        "the token has expired",
    )


BEARER = tuple(_attempts())
