"""Listeners for metadata changes. An error in one listener does not affect the others."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.metadata.image import Image

Listener = Callable[[Image, Image], None]
"""Called with the old and the new image, on the event loop, before any proposer of the change resumes."""


class ListenerFailed(Exception):
    """A listener raised an error, which is the cause. The image and the other listeners have the change."""


class Listeners:
    """The listeners of one broker, called in the order of their registration."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def notify(self, old: Image, new: Image) -> None:
        """Call all listeners. Pass an error to the event loop's exception handler.

        An error must not end this broker's part in the metadata quorum: the entry is committed, and would fail again
        after each restart.
        """
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception as error:
                failure = ListenerFailed(f"a listener failed at entry {new.index} of the metadata: {error!r}")
                failure.__cause__ = error
                context = {"message": str(failure), "exception": failure}
                asyncio.get_running_loop().call_exception_handler(context)
