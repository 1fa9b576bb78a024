"""Archive: sealed segments of partitions in an object store, and readers of them that need no broker (KIP-405)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.archive.tables import open as open  # noqa: A004 - cordwood.archive.open

__all__ = ["open"]


def __getattr__(name: str) -> Any:
    """Return `open` of `tables.py`, whose import costs a broker nothing: only that reader needs Arrow."""
    if name == "open":
        return import_module("cordwood.archive.tables").open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
