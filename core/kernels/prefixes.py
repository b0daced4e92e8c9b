"""A number for every prefix that ends with a full block of a prompt, in compiled form."""

from typing import Any

import numpy as np

from blend.core.kernels.compiled import compiled


@compiled
def number_prefixes(rows: Any, full: Any, shared: Any, starts: Any) -> Any:
    """Return the prefix numbers of all rows, flat by row.

    *rows*, their *full* blocks and the blocks *shared* with the row before are in depth-first
    order; *starts* is by row.
    """
    keys = np.empty(starts[-1], np.int32)
    fresh, before = 0, 0
    for position in range(len(rows)):
        start = starts[rows[position]]
        for index in range(full[position]):
            if index < shared[position]:
                keys[start + index] = keys[before + index]
            else:
                keys[start + index] = fresh
                fresh += 1
        before = start
    return keys
