"""ssl.principal.mapping.rules: from the distinguished name of a client's certificate to a user (KIP-371)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import re2

from cordwood.cluster.security.principal import USER, Principal

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\$(\d)")


class NoRuleMatches(Exception):
    """No mapping rule matches the name of a certificate."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern for the whole distinguished name, and what to make of it."""

    pattern: "re2._Regexp[str]"
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        found: str = match.expand(self.replacement)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class PrincipalRules:
    """The rules of ssl.principal.mapping.rules, in their order. None in the list is DEFAULT."""

    def __init__(self, text: str) -> None:
        """Raises ValueError, whose message completes a sentence after "is"."""
        self._rules: list[_Rule | None] = list(_parsed(text or "DEFAULT"))

    def principal(self, name: str) -> Principal:
        """Return the principal of a distinguished name. Raises NoRuleMatches, also for a user without a name."""
        for rule in self._rules:
            found = name if rule is None else rule.apply(name)
            if found:
                return Principal(USER, found)
        raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches {name!r}")


def _parsed(text: str) -> Iterator[_Rule | None]:
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ValueError(f"not valid at {text[at:]!r}: write RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT")
        at = match.end()
        if match["default"]:
            yield None
            continue
        replacement = match["replacement"].replace("\\/", "/").replace("\\", "\\\\")
        try:
            pattern = re2.compile(match["pattern"].replace("\\/", "/"))
        except re2.error as error:
            raise ValueError(f"not valid: {match['pattern']} is no regular expression ({error})") from None
        if any(int(number) > pattern.groups for number in _REFERENCE.findall(replacement)):
            raise ValueError(f"not valid: {match['replacement']} refers to a group that {match['pattern']} lacks")
        yield _Rule(pattern, _REFERENCE.sub(r"\\g<\1>", replacement), match["case"])
