"""What a user asked for that cannot be: each says so in a sentence, with what would be right."""


class Mistake(ValueError):
    """Any of these."""


class WrongOption(Mistake):
    """An option that does not exist, does not fit the others, or has a value that means nothing."""


class WrongSchema(Mistake):
    """A schema that asks for what a record does not have, or a table that is not made of records."""
