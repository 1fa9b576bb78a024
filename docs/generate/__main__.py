"""Writes the pages that are made from code: `python docs/generate`, or with --check only says which of them are old."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import adr
import compatibility
import configuration
import http_api

from cordwood.cluster.http.metrics import table as metrics

HERE = Path(__file__).resolve().parent.parent

PAGES: Mapping[str, Callable[[Path], str]] = {
    "reference/configuration.md": lambda _docs: configuration.page(),
    "reference/http.md": lambda _docs: http_api.page(),
    "reference/kafka.md": lambda _docs: compatibility.page(),
    "metrics.md": lambda _docs: metrics.page(),
    "adr/index.md": lambda docs: adr.page(docs / "adr"),
}


def old_pages(docs: Path) -> dict[str, str]:
    """The pages that are not what the code says now, by name, each with what it should be."""
    wanted = {name: make(docs) for name, make in PAGES.items()}
    return {name: text for name, text in wanted.items() if _text_of(docs / name) != text}


def main() -> int:
    """Exit code 1 where --check finds an old page."""
    parser = argparse.ArgumentParser(prog="python docs/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is old")
    parser.add_argument("docs", nargs="?", type=Path, default=HERE, help="the folder of the pages")
    arguments = parser.parse_args()
    old = old_pages(arguments.docs)
    for name, text in old.items():
        if arguments.check:
            sys.stdout.write(f"{name} is not what the code says: run `python docs/generate`.\n")
        else:
            (arguments.docs / name).write_text(text, "utf-8")
            sys.stdout.write(f"{name} is written anew.\n")
    return int(arguments.check and bool(old))


def _text_of(page: Path) -> str | None:
    return page.read_text("utf-8") if page.exists() else None


if __name__ == "__main__":
    sys.exit(main())
