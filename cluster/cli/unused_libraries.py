"""Libraries that packages of a broker import if they are installed, though a broker does not use them.

Imported with the others, they would be a fifth of a broker's memory at rest and of the time of its start.
"""

import sys
from importlib import import_module

UNUSED = {
    "kio.static.primitive": ("hypothesis",),
    "structlog.dev": ("rich", "better_exceptions"),
    "pysyncobj.encryptor": ("cryptography",),
}
"""By module, the optional imports: for strategies of tests, tracebacks in color, and an encryption that is off."""


def leave_out() -> None:
    """Import the modules of `UNUSED` as if these libraries were not installed. Later imports find them again."""
    for module, libraries in UNUSED.items():
        absent = [library for library in libraries if library not in sys.modules]
        # None refuses an import of the name (https://docs.python.org/3/reference/import.html#the-module-cache).
        sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
        import_module(module)
        for library in absent:
            del sys.modules[library]
