"""Connections of a run's clients to a closed cluster, by the file of --command-config.

Client processes inherit the file's name by the environment, and never a secret on their command line.
"""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.client.security import ClientSecurity

FILE = "CORDWOOD_COMMAND_CONFIG"
"""The environment variable, which `cordwood` commands read, too."""
_DIRECTORY = "CHAOS_COMMAND_CONFIG_DIRECTORY"
"""Where relative paths in the file begin: client processes have a working directory of their own."""
_LOCATION = ".location"


def use(config: Path | None) -> None:
    """Let all clients of this process and its children connect as the file says; None for an open cluster.

    Raises WrongSetting, and OSError for a file that cannot be read.
    """
    security.cache_clear()
    for name in (FILE, _DIRECTORY):
        os.environ.pop(name, None)
    if config is not None:
        os.environ.update({FILE: str(config.resolve()), _DIRECTORY: str(Path.cwd())})
        tls = security().tls
        if tls is not None:
            tls.context()


@cache
def security() -> "ClientSecurity":
    """Return the security of this process's clients. Raises WrongSetting, OSError."""
    from cordwood.client.properties import read_properties
    from cordwood.client.security import OPEN, client_security

    if FILE not in os.environ:
        return OPEN
    directory = os.environ.get(_DIRECTORY, "")
    given = read_properties(Path(os.environ[FILE]))
    return client_security(
        {key: os.path.join(directory, value) if key.endswith(_LOCATION) else value for key, value in given.items()}
    )


def client_settings(bootstrap: str) -> dict[str, Any]:
    """Return librdkafka's settings of a client's connections, without its log on standard error."""
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    # The client programs of an open cluster do not import what closed ones need: it takes as long as all the rest.
    return {**settings, **security().for_librdkafka()} if FILE in os.environ else settings
