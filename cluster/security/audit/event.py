"""Audit events: the contents of a line of the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.cluster.security.principal import Identity

DETAIL_CHARS_MAX = 500
AUTHENTICATE = "AUTHENTICATE"
"""The action of an event about an authentication, successful or not."""
SUCCEEDED = "NONE"
"""The outcome without an error. Others are names of Kafka's error codes, or HTTP statuses."""
FAILED = "SASL_AUTHENTICATION_FAILED"
"""The outcome of an authentication that failed, by any mechanism: Kafka's name of the error."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An administrative act, or a refusal. No field has a secret."""

    action: str
    """The name of the Kafka API, `AUTHENTICATE`, or the method and route of an HTTP request."""
    identity: Identity
    resource: str
    """A type and a name, such as `TOPIC:orders`; empty for none."""
    outcome: str = SUCCEEDED
    detail: str = ""
    is_refusal: bool = False
    """Whether authentication or the authorizer refused it. Refusals that repeat are counted rather than listed."""

    @property
    def alike(self) -> tuple[str, ...]:
        """What refusals have in common that are counted together: everything but the name of the resource."""
        kind = self.resource.partition(":")[0]
        return str(self.identity.principal), self.identity.host, self.action, kind, self.outcome

    def fields(self, time_ms: int, broker_id: int, count: int = 1) -> Mapping[str, Any]:
        """Return the fields of the line. `count` is the number of alike events that it stands for."""
        identity = self.identity
        return {
            "time_ms": time_ms,
            "broker": broker_id,
            "action": self.action[:DETAIL_CHARS_MAX],
            "principal": str(identity.principal)[:DETAIL_CHARS_MAX],
            "host": identity.host,
            "mechanism": identity.mechanism,
            "resource": self.resource[:DETAIL_CHARS_MAX],
            "outcome": self.outcome,
            "detail": self.detail[:DETAIL_CHARS_MAX],
            **({"count": count} if count > 1 else {}),
        }
