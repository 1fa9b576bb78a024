"""The command tree, and the one place that turns a command's failure into a sentence and an exit code.

Only typer is imported here and at the top of the command files. Each command imports rich and the Kafka client itself,
so that `cordwood serve` loads neither and help is quick.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cordwood import __version__
from cordwood.cluster.cli import (
    acl,
    archive,
    audit,
    balance,
    broker,
    cert,
    cluster,
    consume,
    cut,
    feature,
    group,
    log,
    partition,
    produce,
    quorum,
    quota,
    serve,
    status,
    token,
    topic,
    transaction,
    up,
    user,
)
from cordwood.cluster.cli.exits import INTERRUPTED, ExitCode, Failure

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class SentencesNotTracebacks(TyperGroup):
    """A command group that reports a failure in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
        except Failure as failure:
            typer.echo(f"cordwood: {failure.sentence}", err=True)
            raise typer.Exit(failure.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(ExitCode.OK) from None
        return outcome


EXTENSIONS = "cordwood.commands"
"""The entry points of additional commands that the broker does not need, such as `cordwood chaos`."""


class WithExtensions(SentencesNotTracebacks):
    """The `cordwood` command and its extensions, imported on use. A missing extension is reported in a sentence."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_extensions())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        extension = None if cmd_name in self.commands else _extensions().get(cmd_name)
        return super().get_command(ctx, cmd_name) if extension is None else loaded(extension)


def loaded(extension: "EntryPoint") -> Any:
    """Return an extension's command, or one that reports the missing package."""
    try:
        application = extension.load()
    except ModuleNotFoundError as missing:
        application = _refusing(extension.name, str(missing.name))
    command = typer.main.get_command(application)
    command.name = extension.name
    return command


def _refusing(name: str, module: str) -> typer.Typer:
    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    refusing = typer.Typer(add_completion=False)

    @refusing.command(name, context_settings=lenient, add_help_option=False)
    def refuse() -> None:
        """Report that the extension is not installed."""
        sentence = (
            f"cordwood {name} needs packages that are not installed ({module}). Install them with: pip install"
            f" 'cordwood[{name}]'."
        )
        raise Failure(sentence, ExitCode.USAGE)

    return refusing


def _extensions() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points

    return {extension.name: extension for extension in entry_points(group=EXTENSIONS)}


def _forget_stdout() -> None:
    """Discard buffered output: the reader of the pipe (`| head`) has closed it, and a flush at exit must not raise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    name="cordwood",
    cls=WithExtensions,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Exit codes: 0 success, 1 refused, failed or damaged, 2 usage error, 3 no broker answered, 130 interrupted."
    ),
)
app.command()(up.up)
app.command()(up.down)
app.command()(status.status)
app.add_typer(cluster.app, name="cluster")
app.add_typer(feature.app, name="feature")
app.command()(serve.serve)
app.command()(serve.ready)
app.add_typer(topic.app, name="topic")
app.add_typer(partition.app, name="partition")
app.add_typer(broker.app, name="broker")
app.command()(balance.balance)
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(log.app, name="log")
app.add_typer(quorum.app, name="quorum")
app.add_typer(archive.app, name="archive")
app.add_typer(cut.app, name="cut")
app.add_typer(audit.app, name="audit")
app.add_typer(user.app, name="user")
app.add_typer(acl.app, name="acl")
app.add_typer(quota.app, name="quota")
app.add_typer(token.app, name="token")
app.add_typer(cert.app, name="cert")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cordwood {__version__}")
        raise typer.Exit


@app.callback()
def cordwood(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A replicated log that any Kafka client can use: the broker and the operator's commands."""
