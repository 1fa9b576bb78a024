"""Generator of the pages that are made from code: `python docs/generate`; with --check it only lists outdated pages."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import adr
import compatibility
import configuration
import http_api
import results
import rights

from cordwood.chaos.results import InvalidResultFile
from cordwood.cluster.http.metrics import table as metrics

HERE = Path(__file__).resolve().parent.parent

PAGES: Mapping[str, Callable[[Path], str]] = {
    "reference/configuration.md": lambda _docs: configuration.page(),
    "reference/http.md": lambda _docs: http_api.page(),
    "reference/kafka.md": lambda _docs: compatibility.page(),
    "reference/rights.md": lambda _docs: rights.page(),
    "metrics.md": lambda _docs: metrics.page(),
    "adr/index.md": lambda docs: adr.page(docs / "adr"),
}

RESULTS: Sequence[Callable[[Path], dict[str, str]]] = (
    results.mutants,
    results.performance,
    results.growth,
    results.chaos,
)
"""Pages of results, each with its pictures."""


def old_pages(docs: Path) -> dict[str, str]:
    """Return the outdated pages by name, each with its new text.

    Raises Broken for a result that was not written by a run.
    """
    wanted = {name: make(docs) for name, make in PAGES.items()}
    for make_all in RESULTS:
        wanted |= make_all(docs)
    return {name: text for name, text in wanted.items() if _text_of(docs / name) != text}


def main() -> int:
    """Exit code 1 where --check finds an old page."""
    parser = argparse.ArgumentParser(prog="python docs/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    parser.add_argument("docs", nargs="?", type=Path, default=HERE, help="the directory of the pages")
    arguments = parser.parse_args()
    try:
        old = old_pages(arguments.docs)
    except InvalidResultFile as error:
        sys.stdout.write(f"{error}.\n")
        return 1
    for name, text in old.items():
        if arguments.check:
            sys.stdout.write(f"{name} is out of date: run `python docs/generate`.\n")
        else:
            (arguments.docs / name).parent.mkdir(parents=True, exist_ok=True)
            (arguments.docs / name).write_text(text, "utf-8")
            sys.stdout.write(f"{name} was updated.\n")
    return int(arguments.check and bool(old))


def _text_of(page: Path) -> str | None:
    return page.read_text("utf-8") if page.exists() else None


if __name__ == "__main__":
    sys.exit(main())
