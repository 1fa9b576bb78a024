"""Somebody else's cluster, found by an address: it can be worked on and checked, and not be harmed from here."""

from cordwood.chaos.live.broker_views import NoAnswer, addresses_seen_by
from cordwood.chaos.live.brokers import REPLICAS_MAX, LiveCluster
from cordwood.chaos.live.target import FAULTS, CannotHarm, Target

WHY_NOT = "a cluster that is known by its address alone cannot be harmed from here"


class AddressedBroker:
    """A broker that nobody here may start or end."""

    is_running = True
    has_ended = False

    def __init__(self, address: str) -> None:
        self.address = address

    def begin(self) -> None:
        """It runs."""

    def wait(self) -> None:
        """It runs."""

    def kill(self) -> None:
        """It is not ours: this leaves it alone."""

    def stop(self) -> None:
        """It is not ours: this leaves it alone."""

    def pause(self) -> None:
        """It is not ours: this leaves it alone."""

    def resume(self) -> None:
        """It is not ours: this leaves it alone."""

    def last_words(self) -> str:
        """Only who runs it knows."""
        return ""


class AddressedCluster(LiveCluster):
    """The brokers that one of them, at host:port, knows of. Raises NoAnswer."""

    def __init__(self, address: str) -> None:
        self.brokers = {id_: AddressedBroker(each) for id_, each in addresses_seen_by(address).items()}
        self.replicas = min(len(self.brokers), REPLICAS_MAX)


def reasons() -> dict[str, str]:
    """Why no fault can be done, by their names."""
    return dict.fromkeys(FAULTS, WHY_NOT)


def found(address: str) -> Target:
    """The cluster at host:port. Raises CannotHarm where nobody answers there."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise CannotHarm(f"--target {address}: give local, compose or HOST:PORT")
    try:
        return Target(address, AddressedCluster(address), {}, None)
    except NoAnswer as silence:
        raise CannotHarm(f"no broker answers there: {silence}") from None
