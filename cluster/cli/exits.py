"""How a command ends: exit codes that scripts can tell apart, and failures that carry their own sentence."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell is told. A command that Ctrl-C ended exits with 130, as shells have it."""

    OK = 0
    FAILED = 1
    """The broker refused, a record was not acknowledged, or damage was found."""
    USAGE = 2
    """The command line or a configuration is wrong; nothing was done."""
    UNREACHABLE = 3
    """No broker answered."""


INTERRUPTED = 130


class Failure(Exception):
    """An end that the user is told about in one sentence, which says what to do where something can be done."""

    def __init__(self, sentence: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code
