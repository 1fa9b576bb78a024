"""Groups of options: dataclasses, of which each field is an option of the commands that have the group."""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options, and make the dataclasses of them for a call."""
    declared = signature(command)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in declared.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    options = [
        option.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in declared.parameters.values()
        for option in _options_of(parameter)
    ]
    run.__signature__ = declared.replace(parameters=options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options_of(parameter: Parameter) -> Iterable[Parameter]:
    is_group = is_dataclass(parameter.annotation)
    return signature(parameter.annotation).parameters.values() if is_group else (parameter,)
