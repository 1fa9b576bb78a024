"""Login and logout over HTTP: a user's password for a session cookie, which browsers keep from scripts."""

from typing import Annotated

import msgspec
from aiohttp import web

from cordwood.cluster.http.refusal import json_response
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.sessions import LoginSession
from cordwood.cluster.security.principal import Identity

BODY_BYTES_MAX = 4096
"""The limit of a login: everyone who reaches the listener may send one."""


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a SCRAM user, and the password."""

    user: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    password: Annotated[str, msgspec.Meta(max_length=1024)]

    def __repr__(self) -> str:
        """Leave out the password, and the name: some people type the password there."""
        return "Login()"


class SessionDescription(msgspec.Struct, frozen=True):
    """The sender of a request, as the broker has identified it."""

    principal: str
    mechanism: str
    """PASSWORD for a session, OAUTHBEARER, DELEGATION-TOKEN, SSL for a client certificate; empty without a login."""
    csrf_token: str | None
    """To be sent as X-CSRF-Token with every request of the session that is not a GET; null without a session."""


class EndedSession(msgspec.Struct, frozen=True):
    """The user who has logged out."""

    principal: str


async def log_in(asked: ApiRequest[Nothing, Login]) -> web.Response:
    """Log in with the name and password of a SCRAM user. The response sets the cookie of a session.

    The session lasts until a logout, a change of the password, one hour without a request, or the end of
    `http.session.lifetime.ms`. It is known to this broker alone.
    """
    control, request = asked.context.access_control, asked.request
    secret, identity, session = await control.log_in(request, asked.body.user, asked.body.password)
    response = json_response(_described(identity, session))
    # Without Max-Age: the browser forgets the cookie when it ends.
    response.set_cookie(
        control.cookie_name(request),
        secret,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=control.has_tls(request),
    )
    return response


async def log_out(asked: ApiRequest[Nothing, Nothing]) -> web.Response:
    """Log out: end the session of the request's cookie, and the streams that it has opened."""
    context = asked.context
    control, session = context.access_control, context.access.session
    if session is not None:
        control.log_out(session)
    response = json_response(EndedSession(str(context.access.identity.principal)))
    response.del_cookie(
        control.cookie_name(asked.request),
        path="/",
        httponly=True,
        samesite="Strict",
        secure=control.has_tls(asked.request),
    )
    return response


async def describe_session(asked: ApiRequest[Nothing, Nothing]) -> SessionDescription:
    """Describe the sender of the request."""
    access = asked.context.access
    return _described(access.identity, access.session)


def _described(identity: Identity, session: LoginSession | None) -> SessionDescription:
    token = None if session is None else session.csrf_token
    return SessionDescription(str(identity.principal), identity.mechanism, token)


ROUTES = (
    Route(
        "POST",
        "/v1/login",
        log_in,
        Nothing,
        Login,
        SessionDescription,
        requires=(),
        body_bytes_max=BODY_BYTES_MAX,
    ),
    Route("POST", "/v1/logout", log_out, Nothing, Nothing, EndedSession, requires=()),
    Route("GET", "/v1/session", describe_session, Nothing, Nothing, SessionDescription, requires=()),
)
