"""`cordwood log`: offline dump and verification of a data directory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import AsJson
from cordwood.cluster.cli.output import print_json, print_json_line, progress_bar
from cordwood.storage.errors import DamagedLog
from cordwood.storage.real_disk import RealDisk, RealFile

if TYPE_CHECKING:
    from cordwood.storage.batch import BatchHeader

app = typer.Typer(no_args_is_help=True, help="Read logs on disk without a broker.")

LogPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A log file, a partition's directory, or a whole data directory.")
]


@app.command()
def dump(path: LogPath, as_json: AsJson = False) -> None:
    """Print one line for each batch: its position, offsets, epoch, producer and codec."""
    from cordwood.cluster.broker.verify import dump as batches

    shown = ""
    with _reading(path) as disk:
        for file, position, header in batches(disk, str(path)):
            if as_json:
                print_json_line({"path": file, "position": position, **_fields(header)})
                continue
            if file != shown:
                shown = file
                typer.echo(shown)
            typer.echo(_in_words(position, header))


@app.command()
def verify(
    path: LogPath,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Also check that each key has one record where a log is compacted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every byte: checksums, offsets, epochs, and the indexes against the batches.

    Exits with 1 and prints file and byte of each damaged place. Changes no file.
    """
    from cordwood.cluster.broker.verify import verify as findings_in

    findings = []
    size = _size(path)
    with _reading(path) as disk, progress_bar("verifying", size) as read:
        disk.on_read = read
        for finding in findings_in(disk, str(path), compacted=compacted):
            findings.append(finding)
            if not as_json:
                typer.echo(f"{finding.path}: byte {finding.position}: {finding.what}")
    if as_json:
        damage = [{"path": found.path, "position": found.position, "what": found.what} for found in findings]
        print_json({"path": str(path), "bytes": size, "ok": not findings, "findings": damage})
    elif not findings:
        typer.echo(f"{path}: {size} bytes, no damage found")
    if findings:
        raise Failure(f"{path} is damaged: {len(findings)} findings.")


def _fields(header: "BatchHeader") -> dict[str, Any]:
    """Return the JSON fields of a batch. Times in milliseconds, sizes in bytes."""
    return {
        "base_offset": header.base_offset,
        "end_offset": header.end,
        "records": header.record_count,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "codec": _codec(header),
        "is_control": header.is_control,
    }


def _in_words(position: int, header: "BatchHeader") -> str:
    producer = f"  producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}"
    return (
        f"  byte {position}: offsets {header.base_offset} to {header.end}, {header.record_count} records, {header.size}"
        f" bytes, {_codec(header)}, leader epoch {header.leader_epoch}, latest {_moment(header.max_timestamp)}"
        f"{producer if header.producer_id >= 0 else ''}{'  control' if header.is_control else ''}"
    )


def _codec(header: "BatchHeader") -> str:
    from cordwood.storage.batch import CODEC_MASK, Compression

    codec = header.attributes & CODEC_MASK
    return Compression(codec).name.lower() if codec <= Compression.ZSTD else str(codec)


def _moment(timestamp_ms: int) -> str:
    """Return ISO 8601, or the number for a timestamp outside of its range."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


class _WatchedFile(RealFile):
    """A file that reports the bytes of each read."""

    __slots__ = ("on_read",)

    on_read: Callable[[int], None]

    def pread(self, length: int, position: int) -> bytes:
        content = super().pread(length, position)
        self.on_read(len(content))
        return content


class _WatchedDisk(RealDisk):
    """The real disk, read-only, with a report of the bytes of each read."""

    def __init__(self) -> None:
        self.on_read: Callable[[int], None] = lambda _amount: None

    def open(self, path: str, *, create: bool = False) -> _WatchedFile:
        assert not create, "looking at a log changes nothing"
        file = _WatchedFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        file.on_read = self.on_read
        return file


@contextmanager
def _reading(path: Path) -> Iterator[_WatchedDisk]:
    """Yield a disk to read from. An error of the operating system becomes a Failure."""
    from cordwood.cluster.metadata.snapshot import NewerVersion

    if not path.exists():
        raise Failure(f"{path} does not exist: give a log file or a data directory.", ExitCode.USAGE)
    try:
        yield _WatchedDisk()
    except BrokenPipeError:
        raise
    except (DamagedLog, NewerVersion) as reason:
        raise Failure(str(reason)) from None
    except OSError as error:
        raise Failure(f"cannot read {error.filename or path}: {error.strerror}.") from None


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(
        os.path.getsize(os.path.join(directory, name)) for directory, _below, names in os.walk(path) for name in names
    )
