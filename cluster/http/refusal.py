"""HTTP errors: status, user message and Kafka error name."""

from typing import Any

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

RETRY_AFTER_S = 1
NOT_NOW = 503

_STATUS = {
    ErrorCode.sasl_authentication_failed: 401,
    ErrorCode.topic_authorization_failed: 403,
    ErrorCode.group_authorization_failed: 403,
    ErrorCode.cluster_authorization_failed: 403,
    ErrorCode.transactional_id_authorization_failed: 403,
    ErrorCode.delegation_token_authorization_failed: 403,
    ErrorCode.unknown_topic_or_partition: 404,
    ErrorCode.unknown_topic_id: 404,
    ErrorCode.group_id_not_found: 404,
    ErrorCode.transactional_id_not_found: 404,
    ErrorCode.resource_not_found: 404,
    ErrorCode.topic_already_exists: 409,
    ErrorCode.duplicate_resource: 409,
    ErrorCode.non_empty_group: 409,
    ErrorCode.unknown_member_id: 409,
    ErrorCode.group_subscribed_to_topic: 409,
    ErrorCode.no_reassignment_in_progress: 409,
    ErrorCode.reassignment_in_progress: 409,
    ErrorCode.topic_deletion_disabled: 409,
    ErrorCode.invalid_update_version: 409,
    ErrorCode.message_too_large: 413,
    ErrorCode.record_list_too_large: 413,
    ErrorCode.out_of_order_sequence_number: 422,
    ErrorCode.throttling_quota_exceeded: 429,
}
_PASSING = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.not_controller,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.corrupt_message,
        ErrorCode.rebalance_in_progress,
        ErrorCode.unknown_server_error,
    }
)
_SENTENCES = {
    ErrorCode.unknown_topic_or_partition: "The topic or partition does not exist.",
    ErrorCode.group_id_not_found: "The group does not exist.",
    ErrorCode.topic_authorization_failed: "You have no right to do this to the topic.",
    ErrorCode.group_authorization_failed: "You have no right to do this to the group.",
    ErrorCode.cluster_authorization_failed: "You have no right to do this to the cluster.",
    ErrorCode.transactional_id_authorization_failed: "You have no right to do this to the transactional id.",
    ErrorCode.transactional_id_not_found: "The transactional id does not exist.",
    ErrorCode.invalid_regular_expression: "`pattern` is not a regular expression of RE2.",
    ErrorCode.non_empty_group: "The group has running members: stop them first.",
    ErrorCode.unknown_member_id: "The group has running members: stop them first.",
    ErrorCode.not_leader_or_follower: "The partition has a new leader: try again.",
    ErrorCode.leader_not_available: "The partition has no leader now: try again later.",
    ErrorCode.coordinator_not_available: "There is no coordinator now: try again later.",
    ErrorCode.coordinator_load_in_progress: "The coordinator is still loading: try again.",
    ErrorCode.not_coordinator: "There is a new coordinator: try again.",
    ErrorCode.not_enough_replicas: (
        "Fewer replicas are in sync than min.insync.replicas requires, and nothing was written: try again later."
    ),
    ErrorCode.request_timed_out: "The result is unknown: check whether the change was made before you try again.",
    ErrorCode.kafka_storage_error: (
        "The disk of the partition's leader is full or has failed, and nothing was written: see the broker's /readyz."
    ),
    ErrorCode.offset_not_available: "The partition's leader was just elected: try again.",
    ErrorCode.offset_out_of_range: "The partition has no such offset.",
    ErrorCode.message_too_large: "That is larger than the topic's max.message.bytes.",
}


class Mistake(msgspec.Struct, frozen=True):
    """An error response."""

    error: str
    """The mistake and its remedy, in one sentence or more."""
    code: str
    """The name of the Kafka error code."""


class HttpRefusal(Exception):
    """An expected error, sent as an error response."""

    def __init__(
        self,
        status: int,
        sentence: str,
        code: ErrorCode = ErrorCode.invalid_request,
        retry_after_s: int = RETRY_AFTER_S,
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.code, self.retry_after_s = status, sentence, code, retry_after_s

    def response(self) -> web.Response:
        """Return the error response, with Retry-After if the client may retry."""
        headers = {}
        if self.status in (429, NOT_NOW):
            headers["Retry-After"] = str(self.retry_after_s)
        if self.status == 401:
            # Not Basic: a browser would ask for a password by itself, and send it with requests of other sites' pages.
            headers["WWW-Authenticate"] = 'Bearer realm="Cordwood"'
        return json_response(Mistake(self.sentence, self.code.name.upper()), self.status, headers)


def refusal_of(code: ErrorCode, message: str | None = None) -> HttpRefusal:
    """Return the HTTP error of a Kafka error code; `message` is the broker's own message."""
    return HttpRefusal(status_of(code), as_sentence(message) if message else sentence_of(code), code)


def status_of(code: ErrorCode) -> int:
    """Return the status: 503 for a retriable error, otherwise that of a client error."""
    return NOT_NOW if code in _PASSING else _STATUS.get(code, 400)


def sentence_of(code: ErrorCode) -> str:
    """Return the default message of an error code."""
    return _SENTENCES.get(code) or f"The cluster refused the request: {code.name.upper()}."


def as_sentence(words: str) -> str:
    """Return the message with a capital letter and a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "."


def check(code: ErrorCode, message: str | None = None) -> None:
    """Raise HttpRefusal unless `code` is success."""
    if code is not ErrorCode.none:
        raise refusal_of(code, message)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return Structs as a JSON response."""
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
