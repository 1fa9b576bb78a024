"""The principals in `super.users`."""

import re

from cordwood.cluster.config.settings import Settings

_LIST_BY_COMMAS = re.compile(r",\s*User:")


class SuperUserMistake(Exception):
    """A mistake in `super.users`: a sentence that says what to do."""


def super_users_of(settings: Settings) -> frozenset[str]:
    """Return the principals, as `User:alice`. Raises SuperUserMistake."""
    principals = [part for part in map(str.strip, settings.super_users.split(";")) if part]
    for principal in principals:
        kind, _, name = principal.partition(":")
        if not (kind and name):
            raise SuperUserMistake(
                f"super.users has {principal!r}, which is no principal: write it as type:name, such as User:alice."
            )
        if _LIST_BY_COMMAS.search(principal):
            # A name may have commas: those of a certificate do.
            raise SuperUserMistake(f"super.users has {principal!r}: separate principals by semicolons, not by commas.")
    return frozenset(principals)
