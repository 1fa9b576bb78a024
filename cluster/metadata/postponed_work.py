"""Postponed metadata work: a lack of resources leaves all of it undone, and it is tried again later."""

import structlog

from cordwood.storage.errors import OutOfResources, change_failed

_events = structlog.get_logger("metadata")


def postponed(event: str, error: Exception) -> bool:
    """Return whether `error` is a lack of resources, and log `event` if so. Any other error is final."""
    is_lacking = isinstance(change_failed(error) if isinstance(error, OSError) else error, OutOfResources)
    if is_lacking:
        _events.warning(event, error=str(error))
    return is_lacking
