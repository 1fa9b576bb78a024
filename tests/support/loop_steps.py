"""The longest step of a simulated broker's event loop, counted in function calls."""

import sys
from contextvars import Context
from types import FrameType
from typing import Any

from cordwood.chaos.sim.loop import PROCESS, SimulatedLoop

WORLD = "/chaos/sim/"
_CALL_NOW = SimulatedLoop.call_now.__code__
_RUNNING = SimulatedLoop._run_once.__code__, _CALL_NOW
"""The code that runs steps: each by a call of `Context.run`."""


class LongestStep:
    """A context that counts in `calls` the Python and C calls of the brokers' longest step within it.

    A step is one callback of the loop, such as a task's way from one suspending `await` to the next. A call takes about
    0.1 microseconds. The duration of a single C call is not seen.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._is_brokers = False
        self._this_step = 0

    def __enter__(self) -> "LongestStep":
        sys.setprofile(self._count)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        sys.setprofile(None)
        self._end_step()
        assert kind is not None or self.calls, "no step of a broker was seen"

    def _count(self, frame: FrameType, event: str, called: Any) -> None:
        if event not in ("call", "c_call"):
            return
        if event == "c_call" and frame.f_code in _RUNNING and called.__name__ == "run":
            self._end_step()
            self._is_brokers = _is_in_broker(_context_of(frame))
        # The simulator's code stands for the operating system's disk and network.
        self._this_step += WORLD not in frame.f_code.co_filename

    def _end_step(self) -> None:
        if self._is_brokers:
            self.calls = max(self.calls, self._this_step)
        self._this_step, self._is_brokers = 0, False


def _context_of(frame: FrameType) -> Context:
    context: Context = frame.f_locals["context"] if frame.f_code is _CALL_NOW else frame.f_locals["step"].context
    return context


def _is_in_broker(context: Context) -> bool:
    process = context.get(PROCESS)
    return process is not None and process.host.startswith("broker-")
