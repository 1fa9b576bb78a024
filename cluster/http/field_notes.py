"""Attribute docstrings of Structs, extracted from the source for the OpenAPI descriptions."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

import msgspec


def notes_of(shape: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings by the fields' JSON names. Fields without a docstring are left out."""
    try:
        source = inspect.getsource(shape)
    except OSError:
        # Installed without the source: there are no descriptions.
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
