"""The users with whom a cluster begins, from texts in the syntax of Kafka's storage tool or as NAME=PASSWORD.

| text | credentials |
|---|---|
| `SCRAM-SHA-256=[name=alice,password=secret]` | of one mechanism |
| `admin=[password=secret]`, `admin=secret` | of both mechanisms |

Further fields in brackets are `iterations` and, in base64, `salt` and `saltedpassword`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cordwood.cluster.metadata.commands import ScramUpsertion
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.sasl.scram_keys import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    credential_of,
    credential_of_salted,
)
from cordwood.cluster.security.sasl.users import SALT_BYTES

_MECHANISMS = {name: mechanism for mechanism, name in MECHANISM_NAMES.items()}
_LISTED = re.compile(r"(?P<name>[^=]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELD = re.compile(r'(?P<key>[a-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))(?:,|$)')
_KEYS = {"name", "password", "iterations", "salt", "saltedpassword"}


class UserMistake(Exception):
    """A text that names no user: a sentence that says what to do. It has no part of the text, which is a secret."""


@dataclass(frozen=True, slots=True)
class FirstUser:
    """A credential to make. Its repr has no secret."""

    name: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    password: str | None = field(repr=False)
    salted_password: bytes = field(repr=False)

    def upsertion(self) -> ScramUpsertion:
        """Return the credential for the metadata. Takes milliseconds."""
        if self.password is None:
            keys = credential_of_salted(self.salted_password, self.salt, self.iterations, self.mechanism)
        else:
            keys = credential_of(self.password, self.salt, self.iterations, self.mechanism)
        return ScramUpsertion(self.name, self.mechanism, keys.salt, keys.stored_key, keys.server_key, keys.iterations)


def first_users(texts: Iterable[str], random_bytes: Callable[[int], bytes]) -> tuple[ScramUpsertion, ...]:
    """Return the credentials of the texts; of two for the same user and mechanism, the last. Raises UserMistake."""
    users = (user for text in texts for user in _parsed(text, random_bytes))
    return tuple(user.upsertion() for user in {(user.name, user.mechanism): user for user in users}.values())


def _parsed(text: str, random_bytes: Callable[[int], bytes]) -> list[FirstUser]:
    listed = _LISTED.fullmatch(text)
    if listed is None:
        name, separator, password = text.partition("=")
        if not separator:
            raise UserMistake("a user is written as NAME=PASSWORD or SCRAM-SHA-256=[name=NAME,password=PASSWORD].")
        fields, mechanisms = {"name": name, "password": password}, tuple(ScramMechanism)
    elif listed["name"] in _MECHANISMS:
        fields, mechanisms = _fields(listed["fields"]), (_MECHANISMS[listed["name"]],)
    else:
        fields, mechanisms = {"name": listed["name"], **_fields(listed["fields"])}, tuple(ScramMechanism)
    return [_user(fields, mechanism, random_bytes) for mechanism in mechanisms]


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None or match["key"] not in _KEYS or match["key"] in fields:
            raise UserMistake(
                f"a user's fields are {', '.join(sorted(_KEYS))}, each at most once, separated by commas."
            )
        fields[match["key"]] = match["plain"] if match["quoted"] is None else match["quoted"]
        at = match.end()
    return fields


def _user(fields: dict[str, str], mechanism: ScramMechanism, random_bytes: Callable[[int], bytes]) -> FirstUser:
    name, password = fields.get("name", ""), fields.get("password")
    if not name:
        raise UserMistake("a user needs a name.")
    if (password is None) == ("saltedpassword" not in fields) or password == "":
        raise UserMistake(f"the user {name} needs either a password or a saltedpassword.")
    if password is None and not ("salt" in fields and "iterations" in fields):
        raise UserMistake(f"the user {name} has a saltedpassword, which needs its salt and its iterations.")
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not re.fullmatch(r"[0-9]{1,6}", iterations) or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise UserMistake(f"the iterations of the user {name} must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    salt = _decoded(fields["salt"], name) if "salt" in fields else random_bytes(SALT_BYTES)
    salted = _decoded(fields.get("saltedpassword", ""), name)
    return FirstUser(name, mechanism, int(iterations), salt, password, salted)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise UserMistake(
            f"a salt and a saltedpassword are written in base64: check those of the user {name}."
        ) from None
