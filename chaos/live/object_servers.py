"""S3 servers on loopback that can be stopped and started again: versitygw where Go can build it, otherwise moto."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from cordwood.chaos.live.process import END_S, free_port, wait_for

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
ACCESS_KEY, SECRET_KEY, REGION, BUCKET = "AKIDEXAMPLE", "wJalrXUtnFEMI", "us-east-1", "archive"
READY_S = 30.0
BUILD_S = 600.0
PROGRAMS = Path(__file__).resolve().parent.parent.parent / "build" / "bench"
"""Where the program of versitygw is built."""


class NoServer(Exception):
    """A server that this machine cannot run; the message is a sentence."""


class ObjectServer(ABC):
    """One S3 server with one bucket, which is empty at first. The process ends with the `with` block."""

    name: str

    def __init__(self, directory: Path, prefix: Sequence[str] = ()) -> None:
        """`prefix` is put before the command of the server."""
        directory.mkdir(parents=True)
        self.directory, self.port = directory, free_port()
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/cordwood"

    @property
    def credentials(self) -> Mapping[str, str]:
        """The lines of a credentials file."""
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "region": REGION,
            "endpoint": f"http://127.0.0.1:{self.port}",
        }

    def write_credentials(self, path: Path) -> Path:
        """Write a credentials file, and return its path."""
        path.write_text("".join(f"{key}={value}\n" for key, value in self.credentials.items()))
        return path

    def start(self) -> None:
        """Start the server, and wait until it accepts connections. Raises NoServer."""
        with (self.directory.parent / f"{self.name}.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._prefix, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment()},
            )
        if not wait_for(self._answers, READY_S):
            raise NoServer(f"{self.name} accepts no connections within {READY_S:.0f} s.")

    def stop(self) -> None:
        """Let the server answer no longer. Its objects stay."""
        assert self._process is not None, "the server runs"
        self._process.kill()
        self._process.wait(END_S)

    def start_again(self) -> None:
        """Undo `stop`."""
        self.start()

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command of the server."""

    def environment(self) -> Mapping[str, str]:
        """Return further environment variables of the server."""
        return {}

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Gateway(ObjectServer):
    """versitygw: S3 over a directory, with signatures and If-None-Match."""

    name = "versitygw"

    def __init__(self, directory: Path, programs: Path, prefix: Sequence[str] = ()) -> None:
        """`programs` has the program. Raises NoServer."""
        super().__init__(directory, prefix)
        self._program = build_gateway(programs)
        (directory / BUCKET).mkdir()

    def command(self) -> list[str]:
        keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION]
        return [str(self._program), *keys, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.directory)]


class Moto(ObjectServer):
    """moto's server. Its objects are lost with the process, so that it is suspended in place of an end."""

    name = "moto"

    def start(self) -> None:
        super().start()
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        scope = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/{REGION}/s3/aws4_request"
        connection.request("PUT", f"/{BUCKET}", headers={"Authorization": scope})
        connection.getresponse().read()
        connection.close()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        # Larger objects go to files there.
        return {"TMPDIR": str(self.directory)}

    def stop(self) -> None:
        assert self._process is not None, "the server runs"
        self._process.send_signal(signal.SIGSTOP)

    def start_again(self) -> None:
        assert self._process is not None, "the server runs"
        self._process.send_signal(signal.SIGCONT)


def build_gateway(programs: Path) -> Path:
    """Return the program of versitygw, built into `programs` if it is not there. Raises NoServer."""
    program = programs / "versitygw"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise NoServer("versitygw needs Go.")
    programs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(programs.absolute()), "CGO_ENABLED": "0"}
    built = subprocess.run(
        ["go", "install", GATEWAY], env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if built.returncode != 0:
        raise NoServer(f"Go could not build versitygw: {built.stderr.strip()[-500:]}")
    return program


def open_server(name: str, directory: Path, prefix: Sequence[str] = (), programs: Path = PROGRAMS) -> ObjectServer:
    """Return the server of this name. Raises NoServer."""
    return Moto(directory, prefix) if name == Moto.name else Gateway(directory, programs, prefix)
