"""Regular expressions of clients, in linear time: no expression can occupy the broker (RE2, as in Kafka)."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused

PATTERN_CHARS_MAX = 1000
MEMORY_BYTES_MAX = 1 << 20
"""Memory for one compiled expression. One that needs more is refused."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether a whole text matches. Raises Refused(INVALID_REGULAR_EXPRESSION)."""
    if len(pattern) > PATTERN_CHARS_MAX:
        message = f"The pattern has {len(pattern)} characters; {PATTERN_CHARS_MAX} are allowed."
        raise Refused(ErrorCode.invalid_regular_expression, message)
    # The library takes 3 MB, and most brokers never need it.
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        message = f"The pattern is no regular expression: {_text(error)}"
        raise Refused(ErrorCode.invalid_regular_expression, message) from error
    return lambda text: compiled.fullmatch(text) is not None


def _text(error: Exception) -> str:
    """Return RE2's message, which is bytes."""
    (message,) = error.args or ("",)
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
