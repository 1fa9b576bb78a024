"""The voters in force: the newest set in the log, committed or not, and those before it (Ongaro, 4.1). Pure."""

from collections.abc import Iterable

from cordwood.cluster.metadata.command_codec import UnknownCommand, decode
from cordwood.cluster.metadata.commands import AddVoter, RemoveVoter, UpdateVoter
from cordwood.cluster.metadata.raft import entry as entry_format
from cordwood.cluster.metadata.raft.messages import Row
from cordwood.cluster.metadata.voter_changes import VoterChange
from cordwood.cluster.metadata.voters import Voters, of_rows

_KINDS = frozenset({AddVoter.KIND, RemoveVoter.KIND, UpdateVoter.KIND})
_ARRAY, _ARRAY_MASK = 0x90, 0xF0
"""The first byte of a msgpack array of up to 15 items."""


class VoterLog:
    """The voter sets of a log by index: that of the image, and those of the entries after it.

    An empty set stands for the voters that the configuration names.
    """

    def __init__(self, index: int, voters: Voters) -> None:
        self._sets: list[tuple[int, Voters]] = [(index, voters)]

    @property
    def index(self) -> int:
        """The index of the entry that has the set in force."""
        return self._sets[-1][0]

    @property
    def voters(self) -> Voters:
        return self._sets[-1][1]

    @property
    def before(self) -> Voters:
        """The set before the one in force."""
        return self._sets[-2 if len(self._sets) > 1 else -1][1]

    def sets(self) -> tuple[Voters, ...]:
        """Return the sets in their order, from that of the image on."""
        return tuple(voters for _, voters in self._sets)

    def extend(self, rows: Iterable[Row]) -> bool:
        """Put the sets of new entries in force. Return whether there were any."""
        count = len(self._sets)
        for command, index, _ in rows:
            if index > self.index and (voters := voters_in(command)) is not None:
                self._sets.append((index, voters))
        return len(self._sets) > count

    def truncate_from(self, index: int) -> bool:
        """Take back the sets of removed entries. Return whether there were any."""
        count = len(self._sets)
        while len(self._sets) > 1 and self._sets[-1][0] >= index:
            self._sets.pop()
        return len(self._sets) < count

    def restart(self, index: int, voters: Voters) -> None:
        """Begin with the set of an image that ends at `index`. Sets of entries after it stay."""
        self._sets = [(index, voters), *((at, later) for at, later in self._sets if at > index)]

    def committed(self, commit_index: int) -> None:
        """Drop the sets that no truncation can bring back."""
        while len(self._sets) > 2 and self._sets[1][0] <= commit_index:
            self._sets.pop(0)


def change_in(row: bytes) -> VoterChange | None:
    """Return the change of the voters in an entry, completed or not; None for another entry."""
    _, _, command = entry_format.decode(row)
    if len(command) < 2 or command[0] & _ARRAY_MASK != _ARRAY or command[1] not in _KINDS:
        return None
    try:
        change = decode(command)
    except UnknownCommand:
        return None
    assert isinstance(change, VoterChange), "the number is that of a change of the voters"
    return change


def voters_in(row: bytes) -> Voters | None:
    """Return the voters that an entry puts in force; None for another entry."""
    change = change_in(row)
    return of_rows(change.voters) if change is not None and change.voters else None
