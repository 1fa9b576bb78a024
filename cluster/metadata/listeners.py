"""Listeners of the metadata: each one gets every change, whatever another makes of it."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.metadata.image import Image

Listener = Callable[[Image, Image], None]
"""Called with the image before and after, on the loop, before anyone who proposed a change resumes."""


class ListenerFailed(Exception):
    """A listener raised an error, which is its cause. The others have the change; so has the image."""


class Listeners:
    """Those of one broker, called in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def tell(self, old: Image, new: Image) -> None:
        """Call all of them. An error of one goes to the loop's exception handler.

        It must not end this broker's part in the metadata: the entry is committed, and would end it at each restart.
        """
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception as error:
                failure = ListenerFailed(f"a listener failed at entry {new.index} of the metadata: {error!r}")
                failure.__cause__ = error
                context = {"message": str(failure), "exception": failure}
                asyncio.get_running_loop().call_exception_handler(context)
