"""SASL PLAIN, mechanisms that are not offered, re-authentication as another user, and expired sessions."""

import time
from collections.abc import Callable, Iterator

from closed_cluster import BYSTANDER, OWNER, SECRETS, valid_token
from sasl_client import Refusal, SaslClient

from attempts.attempt import CLOSED, Attempt, Port, Send, Stranger, unproved
from attempts.exchanges import GUESS, SCRAM, UNSUPPORTED, kafka, plain, with_client
from cordwood.cluster.kafka.api_keys import ApiKey

METADATA_VERSION = 12


def _brute_force(stranger: Stranger) -> str:
    """Guess a password a few times, each over a connection of its own: a failed one is closed."""
    return " ".join({plain("", BYSTANDER, f"{GUESS}-{number}")(stranger) for number in range(5)})


def _in_one_connection(client: SaslClient) -> None:
    """Guess twice in one connection."""
    try:
        client.authenticate("PLAIN", f"\0{BYSTANDER}\0{GUESS}".encode())
    except Refusal:
        client.authenticate("PLAIN", f"\0{BYSTANDER}\0{SECRETS[BYSTANDER]}".encode())


def _again(begin: Callable[[SaslClient], object], again: Callable[[SaslClient], object]) -> Send:
    """Return what authenticates, waits as long as a client has to, and authenticates again."""

    def do(client: SaslClient) -> None:
        begin(client)
        # One re-authentication a second is allowed, and the first one at once.
        again(client)
        client.ask(ApiKey.METADATA, METADATA_VERSION, topics=None)

    return with_client(do)


def _of_a_second(client: SaslClient) -> None:
    client.bearer(valid_token("eve", exp=int(time.time()) + 2))
    deadline = time.time() + 10
    while time.time() < deadline:
        client.ask(ApiKey.METADATA, METADATA_VERSION, topics=())
        time.sleep(0.1)


def _attempts() -> Iterator[Attempt]:
    as_bystander = f"User:{BYSTANDER}"
    yield kafka("PLAIN: a wrong password", plain("", BYSTANDER, GUESS), "password is wrong", principal=as_bystander)
    yield kafka("PLAIN: an unknown user", plain("", "nobody", GUESS), "there is no such user")
    yield kafka("PLAIN: an empty password", plain("", BYSTANDER, ""), "password not specified")
    yield kafka("PLAIN: an empty user", plain("", "", GUESS), "username not specified")
    yield kafka("PLAIN: two parts", with_client(lambda c: c.authenticate("PLAIN", b"eve\0x")), "expected 3 tokens")
    yield kafka("PLAIN: four parts", with_client(lambda c: c.authenticate("PLAIN", b"\0e\0x\0y")), "expected 3 tokens")
    yield kafka("PLAIN: not UTF-8", with_client(lambda c: c.authenticate("PLAIN", b"\xff\0\xff\0x")), "not UTF-8")
    yield kafka(
        "PLAIN: the authorization id of another",
        plain("admin", BYSTANDER, SECRETS[BYSTANDER]),
        "authorization id that is different",
        principal=as_bystander,
    )
    yield kafka("PLAIN: five guesses", _brute_force, "password is wrong", principal=as_bystander)
    yield kafka("PLAIN: a second guess in one connection", with_client(_in_one_connection), "password is wrong", CLOSED)
    yield Attempt(
        "PLAIN without TLS",
        Port.KAFKA_UNENCRYPTED,
        with_client(lambda c: c.authenticate("PLAIN", b"\0e\0x"), Port.KAFKA_UNENCRYPTED),
        UNSUPPORTED,
        unproved("the mechanism is not offered on this listener"),
    )
    for mechanism in ("GSSAPI", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-1", "CRAM-MD5", ""):
        yield kafka(
            f"the mechanism {mechanism or 'without a name'}",
            with_client(lambda c, mechanism=mechanism: c.authenticate(mechanism, b"")),  # type: ignore[misc]
            "the mechanism is not offered",
            UNSUPPORTED,
        )
    yield from _of_sessions()


def _of_sessions() -> Iterator[Attempt]:
    def as_eve(client: SaslClient) -> None:
        client.bearer(valid_token("eve"))

    def as_bystander(client: SaslClient) -> None:
        client.scram(BYSTANDER, SECRETS[BYSTANDER])

    yield kafka(
        "re-authentication as another user",
        _again(as_eve, lambda client: client.bearer(valid_token("admin"))),
        "Cannot change principals",
        principal="User:eve",
    )
    yield kafka(
        "re-authentication with another mechanism",
        _again(as_eve, as_bystander),
        "is not supported for re-authentication",
        principal="User:eve",
    )
    yield kafka(
        "re-authentication as another user of the same mechanism",
        _again(as_bystander, lambda client: client.scram(OWNER, SECRETS[OWNER])),
        "Cannot change principals",
        principal=f"User:{BYSTANDER}",
    )
    yield kafka(
        "re-authentication with a wrong password",
        _again(as_bystander, lambda client: client.scram(BYSTANDER, GUESS)),
        "the password is wrong",
        principal=f"User:{BYSTANDER}",
    )
    yield kafka(
        "a request after the end of the session",
        with_client(_of_a_second),
        "the session has expired",
        CLOSED,
        principal="User:eve",
    )
    yield kafka(
        "SaslAuthenticate before SaslHandshake",
        with_client(lambda client: client.step(b"")),
        "a request to API 36",
        CLOSED,
    )
    yield kafka(
        "SaslHandshake twice",
        with_client(lambda client: (client.authenticate(SCRAM), client.authenticate(SCRAM))),
        "a request to API 17",
        CLOSED,
    )
    yield kafka(
        "a request between the two messages of SCRAM",
        with_client(
            lambda client: (client.authenticate(SCRAM, b"n,,n=e,r=x"), client.ask(ApiKey.METADATA, 12, topics=None))
        ),
        "a request to API 3",
        CLOSED,
    )
    yield kafka("forty versions before a handshake", with_client(_many_versions), "requests have not", CLOSED)


def _many_versions(client: SaslClient) -> None:
    for _ in range(40):
        client.ask(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")


SASL = tuple(_attempts())
