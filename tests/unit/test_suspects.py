"""Who may have killed an engine, and how that narrows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anex.jobs.suspects import GUILTY_DEATHS, UNWITNESSED_DEATHS, Suspects, load_suspects, store_suspects


@given(rows=st.lists(st.integers(1, 10**7), min_size=1, max_size=300, unique=True), data=st.data())
def test_one_poison_row_is_found_among_n_in_so_many_deaths_as_n_can_be_halved(
    rows: list[int], data: st.DataObject
) -> None:
    poison = data.draw(st.sampled_from(rows))
    groups, deaths, finished = [Suspects(tuple(rows))], 1, set[int]()
    while True:
        group = groups.pop(0)
        if group.is_guilty(others_finished=True):
            assert group.rows == (poison,)
            break
        if poison in group.rows:
            deaths += 1
            groups = [*group.narrow(group.rows), *groups]
        else:
            finished.update(group.rows)
        groups = load_suspects(store_suspects(groups))
    assert deaths <= 1 + (len(rows) - 1).bit_length() + GUILTY_DEATHS
    assert finished | {poison} | {row for group in groups for row in group.rows} == set(rows)


def test_what_was_not_in_flight_at_a_death_stays_as_suspect_as_it_was() -> None:
    assert Suspects((1, 2)).narrow(()) == [Suspects((1, 2))]
    assert Suspects((1, 2, 3, 4)).narrow((2, 3, 4)) == [Suspects((2,)), Suspects((3, 4))]


def test_a_row_is_believed_guilty_later_where_nothing_was_ever_finished() -> None:
    assert Suspects((1,), GUILTY_DEATHS).is_guilty(others_finished=True)
    assert not Suspects((1,), UNWITNESSED_DEATHS - 1).is_guilty(others_finished=False)
    assert Suspects((1,), UNWITNESSED_DEATHS).is_guilty(others_finished=False)


def test_no_suspects_are_stored_as_nothing() -> None:
    assert store_suspects([]) is None
    assert load_suspects(None) == []
