"""`cordwood user`: users with passwords (SCRAM), which log in to SASL listeners and to the console."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import admin_client, answer, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, UserScramCredentialAlteration

ITERATIONS, ITERATIONS_MAX = 4096, 16384
STANDARD_INPUT = "-"

app = typer.Typer(no_args_is_help=True, help="Add, list and delete users, and change their passwords.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name; ACLs call it User:NAME.")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file whose first line is the password, or - for standard input. Without it the password is asked for.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(min=ITERATIONS, max=ITERATIONS_MAX, help="Iterations of the password's hash: more resist guessing."),
]


@app.command()
def add(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Add a user, for SCRAM-SHA-256 and SCRAM-SHA-512, and for PLAIN if the brokers have it enabled.

    Without ACLs a new user may do nothing on a cluster with access control: see `cordwood acl add`.
    """
    target = target_of(servers, command_config)
    with admin_client(target) as admin:
        if name in _mechanisms(admin):
            raise Failure(f"there is a user {name!r} already: change its password with `cordwood user passwd {name}`.")
        _set_password(admin, name, _password(password_file), iterations)
    typer.echo(f"{name}: added")


@app.command(name="list")
def list_users(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the users with their mechanisms. Nothing shows a password."""
    with admin_client(target_of(servers, command_config)) as admin:
        found = _mechanisms(admin)
    rows = [{"name": name, "mechanisms": mechanisms} for name, mechanisms in sorted(found.items())]
    print_rows(rows, ["NAME", "MECHANISMS"], as_json, "There are no users. Add one with `cordwood user add NAME`.")


@app.command()
def passwd(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Change a user's password.

    Sessions of the console end. Connections of clients stay until they authenticate again.
    """
    target = target_of(servers, command_config)
    with admin_client(target) as admin:
        if name not in _mechanisms(admin):
            raise _no_such_user(name)
        _set_password(admin, name, _password(password_file), iterations)
    typer.echo(f"{name}: password changed")
    if target.security.sasl is not None and target.security.sasl.username == name:
        note(f"Set sasl.password in {command_config} to the new password.")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="One or more users.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the user does not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Delete users. Their ACLs stay: remove them with `cordwood acl remove`, or a new user of that name has them."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
    with admin_client(target_of(servers, command_config)) as admin:
        from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

        found = _mechanisms(admin)
        missing = [name for name in names if name not in found]
        if missing and not if_exists:
            raise _no_such_user(missing[0])
        # In a mechanism's name the library has underscores.
        _alter(
            admin,
            [
                UserScramCredentialDeletion(name, ScramMechanism[mechanism.replace("-", "_")])
                for name in names
                for mechanism in found.get(name, ())
            ],
        )
    for name in names:
        typer.echo(f"{name}: {'missing' if name in missing else 'deleted'}")


def _mechanisms(admin: "AdminClient") -> dict[str, list[str]]:
    """Return the mechanisms of each user."""
    described: Any = admin.describe_user_scram_credentials()
    return {
        name: sorted(info.mechanism.name.replace("_", "-") for info in user.scram_credential_infos)
        for name, user in answer(described).items()
    }


def _set_password(admin: "AdminClient", name: str, password: str, iterations: int) -> None:
    """Set the password of both mechanisms, so that no former one stays."""
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    _alter(
        admin,
        [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, iterations), password.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ],
    )


def _alter(admin: "AdminClient", alterations: "list[UserScramCredentialAlteration]") -> None:
    # One request each: brokers refuse two changes of one user in a request, whatever their mechanisms.
    for alteration in alterations:
        for altered in admin.alter_user_scram_credentials([alteration]).values():
            answer(altered)


def _password(file: str | None) -> str:
    """Return the password from a file, standard input or the terminal. Raises Failure with exit code 2."""
    if file is None and sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    if file is None:
        raise Failure(
            "there is no terminal to ask for the password: give --password-file FILE, or - for standard input.",
            ExitCode.USAGE,
        )
    try:
        text = sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read --password-file {file}: {reason_of(error)}.", ExitCode.USAGE) from None
    password = next(iter(text.splitlines()), "")
    if not password:
        raise Failure(f"the first line of --password-file {file} is empty.", ExitCode.USAGE)
    return password


def _no_such_user(name: str) -> Failure:
    return Failure(f"there is no user {name!r}. `cordwood user list` shows all users.")
