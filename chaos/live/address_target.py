"""A target known by its address only: clients can load and check the cluster, but no fault is possible."""

from cordwood.chaos.live.broker_views import BrokerUnreachable, addresses_seen_by
from cordwood.chaos.live.brokers import REPLICAS_MAX, LiveCluster
from cordwood.chaos.live.target import FAULTS, CannotHarm, FaultTarget

WHY_NOT = "faults cannot be injected into a cluster that is given by its address"


class AddressedBroker:
    """A broker that this program can neither start nor stop: it runs already, and is not ours."""

    is_running = True
    has_ended = False

    def __init__(self, address: str) -> None:
        self.address = address

    def begin(self) -> None:
        """Do nothing."""

    wait = kill = stop = pause = resume = begin

    def last_words(self) -> str:
        """Return nothing: the output is not available here."""
        return ""


class AddressedCluster(LiveCluster):
    """The brokers in the metadata of the broker at host:port. Raises BrokerUnreachable."""

    def __init__(self, address: str) -> None:
        self.brokers = {id_: AddressedBroker(each) for id_, each in addresses_seen_by(address).items()}
        self.replicas = min(len(self.brokers), REPLICAS_MAX)


def reasons() -> dict[str, str]:
    """Return every fault with the reason why it is not possible."""
    return dict.fromkeys(FAULTS, WHY_NOT)


def found(address: str) -> FaultTarget:
    """Return the cluster at host:port. Raises CannotHarm where no broker answers there."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise CannotHarm(f"--target {address}: give local, compose or HOST:PORT")
    try:
        return FaultTarget(address, AddressedCluster(address), {}, None)
    except BrokerUnreachable as silence:
        raise CannotHarm(f"no broker answers there: {silence}") from None
