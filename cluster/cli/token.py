"""`cordwood token`: delegation tokens, which let their holders in as their owner for a time (KIP-48)."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import Target, blocking_connection, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from kio.schema.describe_delegation_token.v3.response import DescribedDelegationToken

    from cordwood.client.blocking import BlockingConnection

HOUR_MS = 3_600_000
HOURS_MAX = 100 * 365 * 24
BROKERS_PERIOD_MS = -1
"""In a request: the period of the broker's settings. In an expiry: at once."""
HEADINGS = ["TOKEN ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "LATEST EXPIRY"]

app = typer.Typer(no_args_is_help=True, help="Create, list, renew and expire delegation tokens.")

TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, from `cordwood token list`.")]


@app.command()
def create(
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="PRINCIPAL", help="User:NAME of another owner than yourself.")
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="PRINCIPAL", help="User:NAME who may renew; may be repeated."),
    ] = None,
    hours: Annotated[
        int | None,
        typer.Option(
            "--max-hours", min=1, max=HOURS_MAX, help="The longest life of the token; the brokers' limit if omitted."
        ),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Create a token, and print it with its secret.

    Clients log in with SCRAM, the token's id as user and its secret (hmac) as password, and tokenauth=true.
    """
    from kio.schema.create_delegation_token.v3.request import CreatableRenewers, CreateDelegationTokenRequest

    named = [_principal(one) for one in renewers or ()]
    kind, name = (None, None) if owner is None else _principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=tuple(CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in named),
        max_lifetime=timedelta(milliseconds=BROKERS_PERIOD_MS if hours is None else hours * HOUR_MS),
    )
    with blocking_connection(target_of(servers, command_config)) as connection:
        made = connection.ask(request)
    _check(made)
    token = {
        "token_id": made.token_id,
        "hmac": base64.b64encode(made.hmac).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires": _time(made.expiry_timestamp),
        "latest_expiry": _time(made.max_timestamp),
    }
    if as_json:
        print_json(token)
    else:
        for key, text in token.items():
            typer.echo(f"{key.replace('_', ' ')}: {text}")


@app.command(name="list")
def list_tokens(
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="PRINCIPAL", help="Only tokens of User:NAME; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """List the tokens that you own or may see, without their secrets."""
    with blocking_connection(target_of(servers, command_config)) as connection:
        tokens = _described(connection, owners)
    rows = [
        {
            "token_id": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            "renewers": [f"{one.principal_type}:{one.principal_name}" for one in token.renewers],
            "issued": _time(token.issue_timestamp),
            "expires": _time(token.expiry_timestamp),
            "latest_expiry": _time(token.max_timestamp),
        }
        for token in tokens
    ]
    print_rows(rows, HEADINGS, as_json, "No token was found. Create one with `cordwood token create`.")


@app.command()
def renew(
    token_id: TokenId,
    hours: Annotated[
        int | None,
        typer.Option(
            "--hours", min=1, max=HOURS_MAX, help="The time to add from now; the brokers' default if omitted."
        ),
    ] = None,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Renew a token: for its owner and its renewers, up to its latest expiry."""
    from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest

    renewed = _changed(
        target_of(servers, command_config),
        token_id,
        hours,
        lambda secret, period: RenewDelegationTokenRequest(hmac=secret, renew_period=period),
    )
    typer.echo(f"{token_id}: expires {_time(renewed.expiry_timestamp)}")


@app.command()
def expire(
    token_id: TokenId,
    hours: Annotated[
        int | None,
        typer.Option("--in-hours", min=1, max=HOURS_MAX, help="The time until the token expires; at once if omitted."),
    ] = None,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Expire a token: for its owner and its renewers. Connections that use it end at their next authentication."""
    from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest

    ended = _changed(
        target_of(servers, command_config),
        token_id,
        hours,
        lambda secret, period: ExpireDelegationTokenRequest(hmac=secret, expiry_time_period=period),
    )
    typer.echo(f"{token_id}: {'expired' if hours is None else f'expires {_time(ended.expiry_timestamp)}'}")


def _described(connection: "BlockingConnection", owners: list[str] | None) -> "tuple[DescribedDelegationToken, ...]":
    from kio.schema.describe_delegation_token.v3.request import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    named = None
    if owners:
        pairs = [_principal(owner) for owner in owners]
        named = tuple(DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in pairs)
    answer = connection.ask(DescribeDelegationTokenRequest(owners=named))
    _check(answer)
    tokens: tuple[DescribedDelegationToken, ...] = answer.tokens
    return tokens


def _secret_of(connection: "BlockingConnection", token_id: str) -> bytes:
    """Return a token's secret, so that it does not have to be on a command line. Raises Failure."""
    for token in _described(connection, None):
        if token.token_id == token_id:
            return bytes(token.hmac)
    raise Failure(f"there is no token {token_id} that you may see. `cordwood token list` shows yours.")


def _changed(target: Target, token_id: str, hours: int | None, request: Callable[[bytes, timedelta], Any]) -> Any:
    """Send the request with the token's secret and its new period. Raises Failure."""
    with blocking_connection(target) as connection:
        period = timedelta(milliseconds=BROKERS_PERIOD_MS if hours is None else hours * HOUR_MS)
        answer = connection.ask(request(_secret_of(connection, token_id), period))
    _check(answer)
    return answer


def _check(answer: Any) -> None:
    """Raise Failure for an error code, with what to do about it."""
    from kio.schema.errors import ErrorCode

    advice = {
        ErrorCode.delegation_token_auth_disabled: "set delegation.token.secret.key to the same secret on all brokers",
        ErrorCode.delegation_token_request_not_allowed: "log in with a password, a bearer token or a certificate:"
        " neither an anonymous client nor a delegation token can do this",
        ErrorCode.delegation_token_authorization_failed: "the owner has to allow CREATE_TOKENS on itself"
        " (--user-principal of `cordwood acl add`)",
        ErrorCode.delegation_token_owner_mismatch: "only its owner and its renewers can renew or expire a token",
        ErrorCode.delegation_token_expired: "create another one",
    }
    if answer.error_code is not ErrorCode.none:
        name = answer.error_code.name.upper()
        hint = advice.get(answer.error_code)
        raise Failure(f"the broker refused: {name}{f' ({hint})' if hint else ''}.")


def _principal(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    if not (kind and name):
        raise Failure(f"{text!r} is not a principal: write it as User:{text or 'NAME'}.", ExitCode.USAGE)
    return kind, name


def _time(value: datetime | int) -> str:
    moment = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
