"""Connections of a run's clients: by a file, also in processes with another working directory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.chaos.live.security import client_settings, security, use
from cordwood.client.security import OPEN
from cordwood.client.tls import WrongSetting

SHOW = """
import json
from cordwood.chaos.live.security import client_settings
print(json.dumps(client_settings("broker:9092")))
"""


@pytest.fixture(autouse=True)
def without_a_file() -> Iterator[None]:
    yield
    use(None)


def test_without_a_file_clients_are_open() -> None:
    use(None)
    assert security() == OPEN
    assert client_settings("b:1") == {"bootstrap.servers": "b:1", "log_level": 0}


def test_client_processes_connect_as_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=chaos\nsasl.password=s3cret\n"
    )
    use(Path("client.properties"))
    elsewhere = subprocess.run([sys.executable, "-c", SHOW], cwd="/", stdout=subprocess.PIPE, check=True)
    assert json.loads(elsewhere.stdout) == client_settings("broker:9092")
    assert client_settings("broker:9092")["sasl.password"] == "s3cret"


def test_paths_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text("security.protocol=SSL\nssl.ca.location=ca.pem\n")
    with pytest.raises(WrongSetting, match=rf"ssl\.ca\.location: {tmp_path}/ca\.pem cannot be used"):
        use(Path("client.properties"))
