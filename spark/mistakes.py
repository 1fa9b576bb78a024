"""Errors in the user's options and schemas, each with a message that names the remedy."""


class Mistake(ValueError):
    """The base class of user errors."""


class WrongOption(Mistake):
    """An option is unknown, contradicts another, or has an invalid value."""


class WrongSchema(Mistake):
    """A read schema has a column that records do not have, or a written table has columns that records cannot have."""
