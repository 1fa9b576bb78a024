"""Errors of reads, writes and options, with messages for the user, which Spark shows without a stack trace."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from cordwood.columnar.errors import ReadError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""An environment variable of Spark's Python processes, read while they report an error. They exit afterwards."""


class Unavailable(ReadError):
    """All retries failed within `retryTimeoutMs`."""


class RequestRefused(ReadError):
    """A broker refused a request with a fatal error: no permission, an invalid topic name, an old protocol."""


class DataLost(ReadError):
    """A partition of a stream was deleted or recreated, or is new and has lost its first records."""


class NotWritten(Exception):
    """The cluster refused records, or did not acknowledge them in time: they may or may not be in the log."""


class PartlyWritten(NotWritten):
    """An exactly-once write of which some records are committed and others are lost."""


class UserError(ValueError):
    """The base class of user errors."""


class WrongOption(UserError):
    """An option is unknown, contradicts another, or has an invalid value."""


class WrongSchema(UserError):
    """A read schema has a column that records do not have, or a written table has columns that records cannot have."""


@contextmanager
def said_plainly() -> Iterator[None]:
    """Wrap every method that Spark calls: expected errors are reported in one line, others with their stack trace."""
    try:
        yield
    except (UserError, ReadError, NotWritten):
        os.environ[HIDE_TRACEBACK] = "1"
        raise


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, case-insensitively; None if none is similar."""
    by_small_letters = {each.lower(): each for each in known}
    matches = get_close_matches(name.lower(), by_small_letters, n=1)
    return by_small_letters[matches[0]] if matches else None
