"""Credentials of an HTTP request: the headers that carry them, and the checks that other parts supply."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.exchange import Authenticated

BEARER, BASIC = "bearer", "basic"

PasswordCheck = Callable[[str, str, str], Awaitable[Principal | None]]
"""Takes user, password and the client's address. Its steps are the same for an unknown user. Raises TooManyChecks."""
BearerCheck = Callable[[str], Authenticated]
"""Takes a JSON Web Token. Raises AuthenticationFailed."""
TokenCheck = Callable[[str, str], Authenticated]
"""Takes the id of a delegation token and its secret. Raises AuthenticationFailed."""
CertificateCheck = Callable[[web.Request], Principal | None]
"""Returns the principal of the client's certificate; None without one. Raises AuthenticationFailed."""


class TooManyChecks(Exception):
    """Too many passwords are being checked: this one was not."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of credentials that a broker's configuration allows."""

    password: PasswordCheck | None = None
    bearer: BearerCheck | None = None
    token: TokenCheck | None = None
    certificate: CertificateCheck = lambda _request: None


class Given(NamedTuple):
    """The content of an Authorization header. `user` is the id of a delegation token; empty for a bearer token."""

    scheme: str
    user: str
    secret: str

    def __repr__(self) -> str:
        """Leave out the secret."""
        return f"Given({self.scheme!r}, {self.user!r})"


def given_in(request: web.Request) -> Given | None:
    """Return the content of the Authorization header; None without one. Raises HttpRefusal."""
    headers = request.headers.getall("Authorization", ())
    if not headers:
        return None
    scheme, _, content = headers[0].partition(" ")
    scheme, content = scheme.lower(), content.strip()
    if len(headers) > 1 or not content:
        raise unauthenticated("The Authorization header is not valid: send one, with a scheme and its credentials.")
    if scheme == BEARER:
        return Given(scheme, "", content)
    if scheme == BASIC:
        try:
            user, colon, secret = base64.b64decode(content, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if not colon:
            raise unauthenticated("The Authorization header is not valid: Basic has the base64 of ID:SECRET.")
        return Given(scheme, user, secret)
    raise unauthenticated(
        "The scheme of the Authorization header is not supported: use Bearer, or Basic for a delegation token."
    )


def unauthenticated(sentence: str) -> HttpRefusal:
    """Return the refusal of a request whose sender is not known."""
    return HttpRefusal(401, sentence, ErrorCode.sasl_authentication_failed)


def scram_credentials_of(user: str, image: Image) -> object:
    """Return what proves a user's name in this image: the SCRAM credentials, which change with the password."""
    return tuple(image.scram_credentials.get((user, mechanism)) for mechanism in ScramMechanism)
