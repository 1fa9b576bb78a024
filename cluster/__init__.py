"""A broker: Kafka protocol, consumer groups, metadata quorum, HTTP and command line."""

import sys

# If hypothesis is installed, kio's number types import it to register strategies: 0.13 s and 13 MB of each broker
# start, unused. A None entry in sys.modules makes that import fail.
if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    import kio.static._phantom  # noqa: F401

    del sys.modules["hypothesis"]
