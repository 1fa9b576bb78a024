"""The SASL mechanisms of a broker, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.bearer import ValidateToken
from cordwood.cluster.security.sasl.exchange import SaslExchange
from cordwood.cluster.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerExchange
from cordwood.cluster.security.sasl.plain import PLAIN, PlainSaslServer
from cordwood.cluster.security.sasl.scram import FindToken, ScramSaslServer, needs_thread
from cordwood.cluster.security.sasl.scram_keys import MECHANISM_NAMES
from cordwood.cluster.security.sasl.users import Users


def never(_message: bytes) -> bool:
    """Return False: each step takes microseconds."""
    return False


def always(_message: bytes) -> bool:
    """Return True: a step may take milliseconds."""
    return True


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    """A mechanism: `begin` returns the exchange of one attempt on a listener, by its name."""

    name: str
    begin: Callable[[str], SaslExchange]
    needs_thread: Callable[[bytes], bool] = never
    """Whether the step of this message has to run in a thread."""


def plain(users: Users) -> SaslMechanism:
    return SaslMechanism(PLAIN, lambda _listener: PlainSaslServer(users), always)


def oauthbearer(validate: ValidateToken) -> SaslMechanism:
    return SaslMechanism(OAUTHBEARER, lambda _listener: OAuthBearerExchange(validate))


def scram(kind: ScramMechanism, users: Users, nonce: Callable[[], str], find_token: FindToken) -> SaslMechanism:
    """Return a SCRAM mechanism. `nonce` returns a new nonce from a strong source."""
    return SaslMechanism(
        MECHANISM_NAMES[kind], lambda _listener: ScramSaslServer(kind, users, nonce(), find_token), needs_thread
    )
