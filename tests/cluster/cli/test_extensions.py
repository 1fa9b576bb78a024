"""Commands of optional packages: loaded on demand, with an error message if a package is missing."""

from importlib.metadata import EntryPoint

import pytest
from command import cordwood

from cordwood.cluster.cli.app import EXTENSIONS, loaded
from cordwood.cluster.cli.exits import Failure


def test_chaos_is_a_command_like_any_other() -> None:
    assert "replay" in cordwood("chaos", "--help").text
    assert " chaos " in cordwood("--help").text


def test_what_is_not_installed_is_named() -> None:
    command = loaded(EntryPoint("chaos", "no_such_package.cli:app", EXTENSIONS))
    with pytest.raises(Failure, match=r"no_such_package.*pip install 'cordwood\[chaos\]'"):
        command.main(["sim", "--seed", "1"], standalone_mode=False)
