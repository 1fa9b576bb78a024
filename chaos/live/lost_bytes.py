"""Silent data loss in a file: a zeroed range, a missing end, or a missing file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Harm(Protocol):
    """Damage to one file, or to a segment and its index. `path` is relative to the data directory."""

    @property
    def path(self) -> Path: ...

    def apply(self, data: Path) -> None:
        """Damage the file. The broker may be running."""
        ...


@dataclass(frozen=True, slots=True)
class Zeros:
    """A range of a file that reads as zeros."""

    path: Path
    position: int
    length: int

    def apply(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.seek(self.position)
            file.write(bytes(self.length))

    def __str__(self) -> str:
        return f"{self.length} zeros at byte {self.position} of {self.path}"


@dataclass(frozen=True, slots=True)
class Shortening:
    """A file that ends too early."""

    path: Path
    size: int

    def apply(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.truncate(self.size)

    def __str__(self) -> str:
        return f"{self.path} cut to {self.size} bytes"


@dataclass(frozen=True, slots=True)
class SegmentRemoval:
    """A missing segment, with or without its index."""

    path: Path
    with_index: bool

    def apply(self, data: Path) -> None:
        (data / self.path).unlink()
        if self.with_index:
            (data / self.path).with_suffix(".index").unlink(missing_ok=True)

    def __str__(self) -> str:
        return f"{self.path} removed{' with its index' if self.with_index else ''}"
