"""A user's mistake reaches the user as its sentence, without the stack of the process that noticed it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.spark.errors import NotWritten, ReadError
from cordwood.spark.mistakes import Mistake

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Spark's Python processes look at this as they report an error, and end after it: nobody else's is hidden by it."""


@contextmanager
def said_plainly() -> Iterator[None]:
    """Around all that Spark calls: what is expected to go wrong does so in one line; anything else keeps its stack."""
    try:
        yield
    except (Mistake, ReadError, NotWritten):
        os.environ[HIDE_TRACEBACK] = "1"
        raise
