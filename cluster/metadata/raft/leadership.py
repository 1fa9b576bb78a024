"""Whether a voter is the active controller, and the listeners for that."""

from collections.abc import Callable

import structlog

_events = structlog.get_logger("quorum")


class Leadership:
    """The newest announced state. Listeners are called when it changes, and a new one if it is leadership."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[bool], None]] = []
        self._was_leader = False

    def subscribe(self, listener: Callable[[bool], None]) -> None:
        self._listeners.append(listener)
        if self._was_leader:
            listener(True)

    def become(self, *, is_active: bool, term: int) -> None:
        if is_active != self._was_leader:
            _events.info("quorum.leads" if is_active else "quorum.leads_no_more", term=term)
            self._announce(is_active)

    def end(self) -> None:
        """Announce that this voter no longer takes part."""
        if self._was_leader:
            self._announce(False)

    def _announce(self, is_leader: bool) -> None:
        self._was_leader = is_leader
        for listener in self._listeners:
            listener(is_leader)
