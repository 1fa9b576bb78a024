"""Properties files of clients."""

from pathlib import Path

import pytest

from cordwood.client.properties import read_properties
from cordwood.client.tls import WrongSetting


def test_keys_and_values(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# a comment\n! another\n\nsecurity.protocol = SSL\nsasl.password=a=b#c \nempty=\n")
    assert read_properties(file) == {"security.protocol": "SSL", "sasl.password": "a=b#c", "empty": ""}


def test_a_line_without_a_key_is_named_and_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\ns3cret\n")
    with pytest.raises(WrongSetting, match="line 2: write it as key=value") as failed:
        read_properties(file)
    assert "s3cret" not in str(failed.value)


def test_other_bytes_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(WrongSetting, match="is not UTF-8"):
        read_properties(file)
