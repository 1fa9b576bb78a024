"""`cordwood cert`: certificates that TLS libraries accept for what they are issued for, and nothing else."""

import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.cluster.cli.app import app
from cordwood.cluster.cli.exits import ExitCode


def cert(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["cert", *map(str, arguments)])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a CA, the certificate `broker` for localhost, and the client's certificate `alice`."""
    assert cert("ca", tmp_path).exit_code == ExitCode.OK
    assert cert("issue", "broker", "--ca", tmp_path, "--host", "localhost").exit_code == ExitCode.OK
    assert cert("issue", "alice", "--ca", tmp_path, "--client").exit_code == ExitCode.OK
    return tmp_path


def shake_hands(directory: Path, server: str, client: str, hostname: str) -> dict[str, Any]:
    """Return the client's certificate as the server sees it, after a handshake in memory. Raises ssl.SSLError."""
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
    accepting.verify_mode = ssl.CERT_REQUIRED
    accepting.load_cert_chain(directory / f"{server}.pem")
    connecting = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    connecting.load_cert_chain(directory / f"{client}.crt", directory / f"{client}.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        accepting.wrap_bio(to_server, to_client, server_side=True),
        connecting.wrap_bio(to_client, to_server, server_hostname=hostname),
    ]
    for _ in range(4):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = ends[0].getpeercert()
    assert seen, "the handshake has ended"
    return dict(seen)


def test_a_brokers_certificate_is_good_for_both_sides(directory: Path) -> None:
    seen = shake_hands(directory, "broker", "broker", "localhost")
    assert seen["subject"] == ((("commonName", "broker"),),)


def test_a_clients_certificate_names_the_user(directory: Path) -> None:
    assert shake_hands(directory, "broker", "alice", "localhost")["subject"] == ((("commonName", "alice"),),)


@pytest.mark.parametrize(("server", "hostname"), [("broker", "elsewhere"), ("alice", "localhost")])
def test_a_server_needs_a_brokers_certificate_for_its_name(directory: Path, server: str, hostname: str) -> None:
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        shake_hands(directory, server, "broker", hostname)


def test_keys_are_readable_by_their_owner_only(directory: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "ca.key",
        *(f"{name}.{kind}" for name in ("broker", "alice") for kind in ("key", "pem")),
    }


def test_nothing_is_overwritten_unless_asked_for(directory: Path) -> None:
    assert cert("ca", directory).exit_code == ExitCode.USAGE
    again = ("issue", "broker", "--ca", directory, "--host", "localhost")
    before = (directory / "broker.pem").read_bytes()
    assert cert(*again).exit_code == ExitCode.USAGE
    assert (directory / "broker.pem").read_bytes() == before
    assert cert(*again, "--replace").exit_code == ExitCode.OK
    assert (directory / "broker.pem").read_bytes() != before


def test_show_says_what_a_file_has(directory: Path) -> None:
    (row,) = json.loads(cert("show", directory / "broker.pem", "--json").stdout)
    assert (row["subject"], row["issuer"], row["hosts"]) == ("CN=broker", "CN=Cordwood CA", ["localhost"])
    assert row["is_valid"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("issue", "broker", "--ca", "missing", "--host", "localhost"),
        ("issue", "broker", "--ca", "."),
        ("issue", "a/b", "--ca", ".", "--client"),
        ("show", "missing.pem"),
        ("show", "ca.key"),
    ],
)
def test_mistakes_are_a_sentence(directory: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(directory)
    outcome = cert(*arguments)
    assert outcome.exit_code == ExitCode.USAGE
    assert outcome.stderr.startswith("cordwood: ")
    assert outcome.stderr.count("\n") == 1
