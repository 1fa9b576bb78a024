"""Regular expressions of subscriptions, resolved by the coordinator (KIP-848). An expression matches whole names."""

from collections.abc import Callable, Iterable

from cordwood.cluster.coordination.patterns import compile_pattern
from cordwood.cluster.resources.turns import Steps

MATCHES_PER_STEP = 50

Names = frozenset[str]


def resolve(
    regexes: Iterable[str], names: Iterable[str], may_describe: Callable[[str], bool]
) -> Steps[dict[str, Names]]:
    """Return the topics of each expression among the names, without those that may not be described."""
    compiled = {}
    for regex in regexes:
        compiled[regex] = compile_pattern(regex)
        yield
    found: dict[str, set[str]] = {regex: set() for regex in compiled}
    matched = 0
    for name in names:
        matching = [regex for regex, matches in compiled.items() if matches(name)]
        if matching and may_describe(name):
            for regex in matching:
                found[regex].add(name)
        matched += len(compiled)
        if matched >= MATCHES_PER_STEP:
            matched = 0
            yield
    return {regex: frozenset(topics) for regex, topics in found.items()}
