"""End of a client program with its run, in whatever way that ends."""

import os
import select
import sys
import threading


def end_with_run() -> None:
    """End this process at once when the reader of its standard output has ended, from another thread.

    A run that ends its clients in order closes their standard input and reads on. One that was killed cannot, and its
    clients would wait for brokers that are gone as well.
    """
    threading.Thread(target=_end, daemon=True).start()


def _end() -> None:
    reader = select.poll()
    # No event is asked for: an error is reported always, and a pipe without a reader is one.
    reader.register(sys.stdout, 0)
    reader.poll()
    os._exit(1)
