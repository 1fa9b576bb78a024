"""Exit codes of commands, and failures with a sentence for the user."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes for scripts. A command that Ctrl-C ended exits with 130, as in shells."""

    OK = 0
    FAILED = 1
    """The broker refused, a record was not acknowledged, or damage was found."""
    USAGE = 2
    """The command line or a configuration is wrong; nothing was done."""
    UNREACHABLE = 3
    """No broker answered."""


INTERRUPTED = 130


class Failure(Exception):
    """The failure of a command: one sentence, which says what to do if something can be done."""

    def __init__(self, sentence: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


def incomplete(reasons: Sequence[str]) -> Failure:
    """Return the failure of a command that has printed a list without what some brokers have."""
    return Failure(f"the list is incomplete: {'; '.join(reasons)}.")


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read or written, without the path and the number of the error."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, so that a command cleans up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
