"""The cluster of `cordwood up` in the working directory."""

import json
from pathlib import Path

CLUSTER_FILE = "cluster.json"
DEFAULT_DIRECTORY = Path("cordwood-cluster")
"""The default of --data-dir of `cordwood up`."""


def addresses() -> list[str]:
    """Return the addresses host:port of the brokers in DEFAULT_DIRECTORY; none, if no cluster is there."""
    try:
        return [str(row["kafka"]) for row in json.loads((DEFAULT_DIRECTORY / CLUSTER_FILE).read_text())["brokers"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
