"""Every mutant fits the source, compiles, and has a killer that is there."""

from pathlib import Path

import pytest

import cordwood
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.killers import ROOT, PytestFile, pinned
from cordwood.chaos.mutants.mutant import Mutant, Stale

SOURCE = Path(cordwood.__path__[0])
KILLERS = pinned()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source_and_has_a_killer(mutant: Mutant) -> None:
    source = (SOURCE / mutant.file).read_text()
    changed = mutant.applied_to(source)
    assert changed != source
    compile(changed, mutant.file, "exec")
    killer = KILLERS[mutant.name]
    assert not isinstance(killer, PytestFile) or (ROOT / killer.path).is_file(), killer


def test_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ALL)
    assert KILLERS.keys() == BY_NAME.keys()


@pytest.mark.parametrize("times", [0, 2])
def test_a_mutant_that_does_not_fit_is_named(times: int) -> None:
    mutant = Mutant("idle", "storage/log.py", "x", "y", "None.", "Not at all.")
    with pytest.raises(Stale, match=r"idle: its text is in storage/log\.py"):
        mutant.applied_to(mutant.find * times)
