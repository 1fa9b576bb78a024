"""Messages of refused requests."""

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import MESSAGE_CHARS_MAX, Refused


def test_a_message_that_quotes_a_long_name_is_cut() -> None:
    refused = Refused(ErrorCode.invalid_topic_exception, f"Unable to find a topic named {'x' * 30_000}.")
    assert refused.message is not None
    assert len(refused.message) == len(str(refused)) == MESSAGE_CHARS_MAX
    assert refused.message.startswith("Unable to find a topic named xx")
    assert refused.message.endswith("…")


def test_a_message_of_usual_length_is_kept() -> None:
    message = "x" * MESSAGE_CHARS_MAX
    assert Refused(ErrorCode.invalid_request, message).message == message
    assert Refused(ErrorCode.invalid_request).message is None
