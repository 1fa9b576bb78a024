"""What one broker is: the Kafka wire, groups, metadata and the command line."""

import sys

# Where hypothesis is installed, kio's number types import it to offer it strategies: 0.13 s and 13 MB of every start
# of a broker, for nothing. They are made to believe that it is not there.
if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    import kio.static._phantom  # noqa: F401

    del sys.modules["hypothesis"]
