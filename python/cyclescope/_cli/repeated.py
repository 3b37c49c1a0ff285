"""Reports that say again what others say: merged, they would count the same leaks twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

Seen = tuple[str, str, int, "int | None", float, int, int]
"""One occurrence of a leak: its signature, the process, when it ended, how much it was."""


SURELY = "have some of the same occurrences, which count twice"
PERHAPS = "report the same leak of one process; occurrences that are in both count twice"


class Content:
    """What a report counts."""

    def __init__(self, text: str) -> None:
        leaks = json.loads(text)["leaks"]
        self.seen: Counter[Seen] = Counter(
            _seen(leak["signature"], one) for leak in leaks for one in leak.get("occurrences", ())
        )
        self._text = hash(text)
        # Whether each occurrence is there by itself, so that all can be compared with others.
        self.is_complete = all(_has_each(leak) for leak in leaks)

    def is_in(self, other: Content) -> bool:
        """Whether another report counts all of this one."""
        if self._text == other._text:
            return True
        return self.is_complete and other.is_complete and self.seen <= other.seen


def _has_each(leak: dict[str, Any]) -> bool:
    """Whether no occurrences of a leak have been added up, and none is left out."""
    occurrences = leak.get("occurrences", ())
    is_single = all(one.get("collections", 1) == 1 for one in occurrences)
    count: int = leak["count"]
    return is_single and count == sum(one["count"] for one in occurrences)


def _seen(signature: str, one: dict[str, Any]) -> Seen:
    process = one["host"], one["pid"], one.get("rank")
    return (signature, *process, one["time"], one["count"], one["bytes"])


def distinct(contents: Sequence[Content]) -> tuple[list[int], tuple[int, int, str] | None]:
    """Which reports are in no other, and two of these that count the same, if any do, in words.

    A file of a watch and what `run -o` has written are equal; a merged report has all of those that
    it was made of. The first of equal reports stays.
    """
    places: dict[Seen, list[int]] = {}
    for number, content in enumerate(contents):
        for one in content.seen:
            places.setdefault(one, []).append(number)
    shared = {number for found in places.values() if len(found) > 1 for number in found}
    kept: set[int] = set()
    # The largest first: a report is in none that has less.
    for number in sorted(shared, key=lambda each: (-contents[each].seen.total(), each)):
        if not any(contents[number].is_in(contents[other]) for other in kept):
            kept.add(number)
    overlapping = None
    for found in places.values():
        owners = [number for number in found if number in kept]
        if len(owners) > 1:
            overlapping = owners[0], owners[1], SURELY
            break
    left = [each for each in range(len(contents)) if each in kept or each not in shared]
    return left, overlapping or _perhaps_overlapping(contents, left)


def _perhaps_overlapping(
    contents: Sequence[Content], numbers: Sequence[int]
) -> tuple[int, int, str] | None:
    """Two reports of a leak of one process, of which one no longer has each occurrence."""
    first: dict[tuple[object, ...], int] = {}
    for number in sorted(numbers, key=lambda each: contents[each].is_complete):
        for leak in {one[:4] for one in contents[number].seen}:
            other = first.setdefault(leak, number)
            if other != number and not contents[other].is_complete:
                return min(other, number), max(other, number), PERHAPS
    return None
