"""`cordwood audit`: verification of a broker's audit log, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import AsJson
from cordwood.cluster.cli.output import print_json

app = typer.Typer(no_args_is_help=True, help="Check the audit log of a broker.")

AuditPath = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The directory of the audit log: audit.log.dir of the broker.")
]
Head = Annotated[
    str,
    typer.Option(
        metavar="HASH",
        help="The hash of a line, noted earlier from the broker's own log or the audit topic: the log must still have"
        " that line. Without it, lines that were cut off at the end are not noticed.",
    ),
]


@app.command()
def verify(path: AuditPath, head: Head = "", as_json: AsJson = False) -> None:
    """Check the hash chain. Exits with 1 and names the first line that was changed, removed or inserted."""
    from cordwood.cluster.security.audit import files
    from cordwood.storage.real_disk import RealDisk

    disk = RealDisk()
    try:
        names = files.names_in(disk, str(path))
        last, name, broken = files.verify(disk, str(path))
        is_found = not head or files.has_hash(disk, str(path), head)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}.", ExitCode.USAGE) from None
    if not names:
        raise Failure(f"{path} has no audit log: its files are named audit-<number>.jsonl.", ExitCode.USAGE)
    if as_json:
        print_json(
            {
                "path": str(path),
                "lines_verified_to": last.sequence,
                "last_hash": last.hash,
                "first_changed": None
                if broken is None
                else {"file": name, "line": broken.line, "reason": broken.reason},
                "head_found": is_found,
            }
        )
    elif broken is None:
        typer.echo(
            f"{path}: all lines to number {last.sequence} are as they were written. The last hash is {last.hash}."
        )
    if broken is not None:
        raise Failure(f"{path / name}: line {broken.line} is the first that was changed: {broken.reason}.")
    if not is_found:
        raise Failure(f"{path} has no line with the hash {head}: lines were cut off at the end, or it is another log.")
