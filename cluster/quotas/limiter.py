"""The windows of one limit, by group: what each group of clients has used, in bounded memory."""

from collections.abc import Callable

from cordwood.cluster.quotas.limits import Limit, LimitedClients, Quotas
from cordwood.cluster.quotas.window import WINDOW_S, Window

FOUND_MAX = 4096
"""Clients whose limit is remembered: a client may send any number of client ids."""
WINDOWS_MAX = 10_000
"""Groups whose use is remembered. Beyond it, full windows are forgotten, and then the oldest ones."""

Find = Callable[[Quotas, str, str], Limit | None]
"""Finds the limit of a client by user and client id, or by address."""


class Limiter:
    """One kind of limit. `charge` counts a use, and `debt_s` returns for how long the client has to wait."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._quotas: Quotas = {}
        self._found: dict[tuple[str, str], Limit | None] = {}
        self._windows: dict[LimitedClients, Window] = {}

    def follow(self, quotas: Quotas) -> None:
        """Apply changed quotas. The use until now stays counted."""
        self._quotas = quotas
        self._found.clear()

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        who = (user, client_id)
        try:
            return self._found[who]
        except KeyError:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            limit = self._found[who] = self._find(self._quotas, user, client_id)
            return limit

    def charge(self, user: str, client_id: str, amount: float, now: float) -> float:
        """Count a use, and return the group's debt in seconds."""
        limit = self.limit_of(user, client_id)
        if limit is None:
            return 0.0
        window = self._window(limit, now)
        window.charge(amount, now)
        return window.debt_s(now)

    def debt_s(self, user: str, client_id: str, now: float) -> float:
        """Return the seconds until the group of a client has paid its debt; 0 without one."""
        return self.charge(user, client_id, 0.0, now)

    def at_once(self, user: str, client_id: str) -> float | None:
        """Return the amount that a client of an idle group may use at once; None without a limit."""
        limit = self.limit_of(user, client_id)
        return None if limit is None else limit.rate * WINDOW_S

    def _window(self, limit: Limit, now: float) -> Window:
        window = self._windows.get(limit.group)
        if window is None:
            if len(self._windows) >= WINDOWS_MAX:
                self._forget(now)
            window = self._windows[limit.group] = Window(limit.rate, now)
        window.change(limit.rate, now)
        return window

    def _forget(self, now: float) -> None:
        """Forget the full windows, and the oldest ones if that is not enough."""
        self._windows = {group: window for group, window in self._windows.items() if not window.is_full(now)}
        for group in list(self._windows)[: max(0, len(self._windows) - WINDOWS_MAX // 2)]:
            del self._windows[group]
