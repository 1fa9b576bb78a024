"""The catalogue of all mutants, also by name. Each module of this folder has the mutants of one topic."""

from importlib import import_module
from pkgutil import iter_modules

from cordwood.chaos.mutants.mutant import Mutant

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
ALL: tuple[Mutant, ...] = tuple(mutant for module in _MODULES for mutant in module.MUTANTS)

BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
