from itertools import product

import pytest

from tidemill.contracts.lifecycle import LEGAL_MOVES, Move, PolicyStatus, next_status
from tidemill.errors import IllegalTransitionError


@pytest.mark.parametrize(
    ("status", "move", "target"),
    [
        ("candidate", "start_canary", "challenger"),
        ("candidate", "promote", "champion"),
        ("candidate", "reject", "rejected"),
        ("candidate", "supersede", "rejected"),
        ("challenger", "promote", "champion"),
        ("challenger", "reject", "rejected"),
        ("challenger", "supersede", "rejected"),
        ("champion", "retire", "retired"),
        ("champion", "roll_back", "retired"),
        ("retired", "restore", "champion"),
    ],
)
def test_legal_moves_lead_where_the_design_says(status: str, move: str, target: str) -> None:
    assert next_status(PolicyStatus(status), Move(move)) is PolicyStatus(target)


def test_every_other_move_is_refused() -> None:
    illegal = set(product(PolicyStatus, Move)) - set(LEGAL_MOVES)
    assert len(illegal) == len(PolicyStatus) * len(Move) - 10
    for status, move in illegal:
        with pytest.raises(IllegalTransitionError, match=f"a {status} version cannot {move}"):
            next_status(status, move)


def test_a_rejected_version_never_returns() -> None:
    assert not [move for status, move in LEGAL_MOVES if status is PolicyStatus.REJECTED]
