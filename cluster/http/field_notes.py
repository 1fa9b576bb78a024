"""What is written below the fields of a Struct, for its description: the code has it once, and so has OpenAPI."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

import msgspec


def notes_of(shape: type[msgspec.Struct]) -> dict[str, str]:
    """By the names that fields have in JSON; only those that have a note."""
    try:
        source = inspect.getsource(shape)
    except OSError:
        # Installed without its source: the fields have to speak for themselves.
        return {}
    names = {field.name: field.encode_name for field in msgspec.structs.fields(shape)}
    return {names[name]: note for name, note in _notes(source) if name in names}


def _notes(source: str) -> Iterator[tuple[str, str]]:
    (shape,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(shape, ast.ClassDef), "a Struct is a class"
    for field, note in zip(shape.body, shape.body[1:], strict=False):
        match field, note:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
