"""Generated documentation pages are up to date and complete."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.cluster.config.settings import SETTINGS
from cordwood.cluster.config.topic_configs import TOPIC_CONFIGS
from cordwood.cluster.kafka.registry import KAFKA_APIS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generate(*arguments: object) -> tuple[int, str]:
    """Run `python docs/generate` and return its exit code and output."""
    command = [sys.executable, str(DOCS / "generate"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_every_page_is_what_the_code_says() -> None:
    assert generate("--check") == (0, "")


def test_an_old_page_is_named_and_written_anew(tmp_path: Path) -> None:
    copy = shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("generate"))
    page = copy / "reference" / "configuration.md"
    page.write_text(page.read_text().replace("`min.insync.replicas`", "`min.insync`"))
    (copy / "adr" / "9999-one-more.md").write_text("# 9999. One more\n")

    exit_code, said = generate("--check", copy)
    assert exit_code == 1
    assert [line.split()[0] for line in said.splitlines()] == ["reference/configuration.md", "adr/index.md"]

    assert generate(copy)[0] == 0
    assert page.read_text() == (DOCS / "reference" / "configuration.md").read_text()
    assert "[9999: One more](9999-one-more.md)" in (copy / "adr" / "index.md").read_text()
    assert generate("--check", copy) == (0, "")


def test_neither_a_page_of_results_nor_a_result_can_be_edited(tmp_path: Path) -> None:
    docs = shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("generate"))
    names = ["mutants.md", "performance.md", "growth.md", "chaos-results.md"]
    for name in names:
        (docs / name).write_text((docs / name).read_text().replace(". ", "! ", 1))
    exit_code, said = generate("--check", docs)
    assert (exit_code, [line.split()[0] for line in said.splitlines()]) == (1, names)

    (docs / "results").mkdir(exist_ok=True)
    (docs / "results" / "mutants.jsonl").write_text('{"kind": "mutants", "commit": "abc", "seal": "0"}\n')
    said = "mutants.jsonl, line 1 is not what a run wrote: its seal does not match.\n"
    assert generate("--check", docs) == (1, said)


@pytest.mark.parametrize("key", [*SETTINGS, *TOPIC_CONFIGS])
def test_every_key_has_a_sentence(key: str) -> None:
    meanings = [table[key].documentation for table in (SETTINGS, TOPIC_CONFIGS) if key in table]
    assert all(meaning[:1].isalnum() and meaning.endswith(".") for meaning in meanings), meanings
    assert f"| `{key}` |" in (DOCS / "reference" / "configuration.md").read_text()


def test_every_api_of_kafka_is_served_or_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "generate"))
    import compatibility

    kafka = compatibility.kafka_apis()
    served = compatibility.served_names()
    not_served = {name for names in compatibility.NOT_SERVED.values() for name in names}
    assert len(served) == len(KAFKA_APIS)
    assert served | not_served | compatibility.BETWEEN_BROKERS == kafka.keys()
    assert not served & not_served
    assert not (served | not_served) & compatibility.BETWEEN_BROKERS
