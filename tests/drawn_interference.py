"""Any interference that an engine can have, drawn at random."""

import numpy as np
from hypothesis import strategies as st

from blend.core.planning.interference import SHAPES, Interference


def of_weights(weights: list[float]) -> Interference:
    """Return the weighted sum of the shapes, the weights brought to a sum of one at most."""
    whole = np.array(weights) / max(sum(weights), 1.0)
    return Interference(*(whole @ np.array([shape.coefficients for shape in SHAPES])).tolist())


interferences = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).map(of_weights)
