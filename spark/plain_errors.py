"""Expected errors without a stack trace: Spark shows the user only the message."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.spark.errors import NotWritten, ReadError
from cordwood.spark.user_errors import UserError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""An environment variable of Spark's Python processes, read while they report an error. They exit afterwards."""


@contextmanager
def said_plainly() -> Iterator[None]:
    """Wrap every method that Spark calls: expected errors are reported in one line, others with their stack trace."""
    try:
        yield
    except (UserError, ReadError, NotWritten):
        os.environ[HIDE_TRACEBACK] = "1"
        raise
