"""Errors in the user's options and schemas, each with a message that names the remedy."""


class UserError(ValueError):
    """The base class of user errors."""


class WrongOption(UserError):
    """An option is unknown, contradicts another, or has an invalid value."""


class WrongSchema(UserError):
    """A read schema has a column that records do not have, or a written table has columns that records cannot have."""
