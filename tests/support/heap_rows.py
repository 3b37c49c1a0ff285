"""Finding in a report of the live heap what a test asks of."""

from __future__ import annotations

import cyclescope


def of(heap: cyclescope.Heap, pointer: int) -> cyclescope.HeapBuffer:
    (found,) = [buffer for buffer in heap.buffers if buffer.pointer == pointer]
    return found


def row(table: cyclescope.HeapTable, part: str) -> cyclescope.HeapRow:
    found = [row for row in table.rows if part in row.name]
    assert len(found) == 1, str(table)
    return found[0]
