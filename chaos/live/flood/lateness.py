"""The worst event-loop lateness of brokers, from their own metrics."""

import math
import re
from urllib.request import urlopen

METRIC = "cordwood_loop_lateness_seconds"
BUCKET = re.compile(rf'^{METRIC}_bucket{{le="([^"]+)"}} (\S+)$', re.MULTILINE)
ANSWER_S = 20.0


def lateness_s(http_address: str) -> float:
    """Return an upper bound of the lateness of all timers of a broker's event loop. Raises OSError.

    The lateness includes the time that the event loop waited for a processor.
    """
    with urlopen(f"http://{http_address}/metrics", timeout=ANSWER_S) as answer:
        return latest_in(answer.read().decode())


def latest_in(metrics: str) -> float:
    """Return the upper bound of the last bucket with a sample, in seconds; 0 where none has."""
    latest, seen = 0.0, 0.0
    for bound, count in BUCKET.findall(metrics):
        if float(count) > seen:
            latest, seen = math.inf if bound == "+Inf" else float(bound), float(count)
    return latest
