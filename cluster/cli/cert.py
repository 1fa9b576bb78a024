"""`cordwood cert`: a private CA, and certificates for brokers and clients."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import AsJson
from cordwood.cluster.cli.output import print_json

if TYPE_CHECKING:
    from cryptography import x509

    from cordwood.cluster.security.certificates import CertifiedKey

CA_KEY, CA_CERTIFICATE = "ca.key", "ca.crt"
CA_DAYS, DAYS, DAYS_MAX = 3650, 397, 100 * 365

app = typer.Typer(no_args_is_help=True, help="Make certificates for TLS.")

CaDirectory = Annotated[
    Path,
    typer.Option("--ca", metavar="DIRECTORY", help="The directory that `cordwood cert ca` wrote."),
]


@app.command()
def ca(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to write ca.key and ca.crt.")],
    name: Annotated[str, typer.Option(help="The common name of the CA.")] = "Cordwood CA",
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How long the CA is valid.")] = CA_DAYS,
) -> None:
    """Make a CA. Keep its key on one machine that no client can reach: with it one can issue certificates."""
    write_ca(directory, name, days)
    typer.echo(f"{directory / CA_CERTIFICATE}: give it to brokers and clients (ssl.ca.location).")
    typer.echo(f"{directory / CA_KEY}: keep it secret.")


@app.command()
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The common name: a broker's or a user's.")],
    ca_directory: CaDirectory,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Where to write the files; beside the CA if omitted."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="A name or address that clients connect to; may be repeated."),
    ] = None,
    client: Annotated[bool, typer.Option("--client", help="A client's certificate, which no server can use.")] = False,
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How long the certificate is valid.")] = DAYS,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files: a rotation.")] = False,
) -> None:
    """Issue a certificate. NAME.pem has key and certificate together, for ssl.keystore.location of a broker."""
    from cordwood.cluster.security import certificates

    if not client and not hosts:
        raise Failure("a broker's certificate needs at least one --host, which its clients connect to.", ExitCode.USAGE)
    if not name or "/" in name:
        raise Failure(f"{name!r} cannot be a file's name: choose another.", ExitCode.USAGE)
    made = certificates.issue(read_ca(ca_directory), name, hosts or (), days, is_client=client, now=datetime.now(UTC))
    directory = ca_directory if out is None else out
    write_pair(directory, name, made, may_replace=replace)
    typer.echo(f"{directory / name}.pem: valid until {_day(made.certificate.not_valid_after_utc)}.")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A PEM file with certificates.")], as_json: AsJson = False
) -> None:
    """Show the certificates in a file: names, hosts and validity. Exits with 1 if one is not valid now."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}.", ExitCode.USAGE) from None
    except ValueError:
        raise Failure(f"{path} has no PEM certificate.", ExitCode.USAGE) from None
    now = datetime.now(UTC)
    rows = [_row(certificate, now) for certificate in found]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            hosts = f", for {', '.join(row['hosts'])}" if row["hosts"] else ""
            state = "" if row["is_valid"] else " NOT VALID NOW:"
            typer.echo(
                f"{row['subject']}, issued by {row['issuer']}{hosts}.{state} {row['valid_from']} to {row['valid_to']}."
            )
    if not all(row["is_valid"] for row in rows):
        raise typer.Exit(ExitCode.FAILED)


def write_ca(directory: Path, name: str, days: int) -> None:
    """Make a CA, and write its key and its certificate. Raises Failure."""
    from cordwood.cluster.security.certificates import make_ca

    made = make_ca(name, days, datetime.now(UTC))
    _write_new(directory / CA_KEY, made.key_pem, is_secret=True)
    _write_new(directory / CA_CERTIFICATE, made.certificate_pem)


def end_of(path: Path) -> datetime | None:
    """Return when the first certificate in a PEM file ends; None if the file has none that can be read."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc
    except (OSError, ValueError):
        return None


def read_ca(directory: Path) -> "CertifiedKey":
    """Return the CA of a directory. Raises Failure."""
    from cordwood.cluster.security.certificates import CertificateMistake, read

    try:
        return read((directory / CA_KEY).read_bytes(), (directory / CA_CERTIFICATE).read_bytes())
    except OSError as error:
        sentence = f"cannot read the CA in {directory}: {error.strerror}. Make one with `cordwood cert ca {directory}`."
        raise Failure(sentence, ExitCode.USAGE) from None
    except CertificateMistake as mistake:
        raise Failure(f"cannot use the CA in {directory}: {mistake}.", ExitCode.USAGE) from None


def write_pair(directory: Path, name: str, made: "CertifiedKey", *, may_replace: bool = False) -> None:
    """Write NAME.key, NAME.crt, and NAME.pem with both. Raises Failure.

    Each file is replaced as a whole, so that a broker that reads it finds the old one or the new one.
    """
    write = _replace if may_replace else _write_new
    write(directory / f"{name}.key", made.key_pem, is_secret=True)
    write(directory / f"{name}.crt", made.certificate_pem)
    write(directory / f"{name}.pem", made.key_pem + made.certificate_pem, is_secret=True)


def _write_new(path: Path, content: bytes, *, is_secret: bool = False) -> None:
    if path.exists():
        raise Failure(f"{path} exists already: choose another directory, or remove it.", ExitCode.USAGE)
    _replace(path, content, is_secret=is_secret)


def _replace(path: Path, content: bytes, *, is_secret: bool = False) -> None:
    temporary = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}.") from None


def _row(certificate: "x509.Certificate", now: datetime) -> dict[str, Any]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [str(name.value) for name in names]
    except x509.ExtensionNotFound:
        hosts = []
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "hosts": hosts,
        "valid_from": _day(certificate.not_valid_before_utc),
        "valid_to": _day(certificate.not_valid_after_utc),
        "is_valid": certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc,
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
