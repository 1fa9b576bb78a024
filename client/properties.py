"""Properties files of clients, such as `client.properties`: one key=value a line."""

from pathlib import Path

from cordwood.client.tls import WrongSetting

COMMENTS = "#!"


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and values of a file. Raises OSError, and WrongSetting, which quotes no value."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise WrongSetting(f"{path} is not UTF-8 text") from None
    given = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and line[0] not in COMMENTS:
            key, separator, value = line.partition("=")
            if not separator:
                raise WrongSetting(f"{path}, line {number}: write it as key=value")
            given[key.strip()] = value.strip()
    return given
