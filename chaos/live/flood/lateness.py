"""How late the event loops of brokers were at the worst, from their own metrics."""

import math
import re
from urllib.request import urlopen

METRIC = "cordwood_loop_lateness_seconds"
BUCKET = re.compile(rf'^{METRIC}_bucket{{le="([^"]+)"}} (\S+)$', re.MULTILINE)
ANSWER_S = 20.0


def lateness_s(http_address: str) -> float:
    """No timer of the broker's loop rang later than this. Raises OSError.

    It includes the time that the loop waited for a processor.
    """
    with urlopen(f"http://{http_address}/metrics", timeout=ANSWER_S) as answer:
        return latest_in(answer.read().decode())


def latest_in(metrics: str) -> float:
    """The upper bound of the last bucket that has anything, in seconds; 0 where none has."""
    latest, seen = 0.0, 0.0
    for bound, count in BUCKET.findall(metrics):
        if float(count) > seen:
            latest, seen = math.inf if bound == "+Inf" else float(bound), float(count)
    return latest
