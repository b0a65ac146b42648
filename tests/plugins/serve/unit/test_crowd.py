"""A bound on what anybody may begin: a newcomer takes the place of one that a larger owner has."""

from __future__ import annotations

from sandbox_kernel.plugins.serve.crowd import Crowd


def test_the_largest_owner_makes_room_with_its_oldest() -> None:
    dropped: list[str] = []
    crowd: Crowd[str] = Crowd(6, 4, dropped.append)
    for member in ("a1", "a2", "a3", "a4", "b1", "b2"):
        crowd.add(member, member[0])
    crowd.add("c1", "c")
    assert dropped == ["a1"]
    crowd.add("b3", "b")
    assert dropped == ["a1", "a2"], "b has as many as a, and one more would be the largest: but a has the older"


def test_an_owner_with_all_it_may_have_gives_up_its_own() -> None:
    dropped: list[str] = []
    crowd: Crowd[str] = Crowd(100, 2, dropped.append)
    for member in ("b1", "a1", "a2", "a3"):
        crowd.add(member, member[0])
    assert dropped == ["a1"]
    crowd.discard("a2")
    crowd.add("a4", "a")
    assert (dropped, len(crowd)) == (["a1"], 3)


def test_owners_of_one_each_give_up_the_oldest() -> None:
    dropped: list[int] = []
    crowd: Crowd[int] = Crowd(3, 3, dropped.append)
    for number in range(6):
        crowd.add(number, number)
    assert dropped == [0, 1, 2]
