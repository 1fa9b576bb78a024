"""Voters of the metadata quorum, as the metadata log names them (KIP-853)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cordwood.cluster.metadata.commands import BrokerId, VoterRow


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter: the id of its metadata directory, by which an empty disk is recognized, and its address."""

    directory_id: str
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


Voters = Mapping[BrokerId, Voter]


def rows_of(voters: Voters) -> tuple[VoterRow, ...]:
    """Return the voters as a command has them, by ascending id."""
    rows = sorted(voters.items())
    return tuple((voter_id, voter.directory_id, voter.host, voter.port) for voter_id, voter in rows)


def of_rows(rows: Iterable[VoterRow]) -> Voters:
    return {voter_id: Voter(directory_id, host, port) for voter_id, directory_id, host, port in rows}
