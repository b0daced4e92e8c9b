"""The figures of the paper's evaluation that ours stand beside (paper §6 and its appendix)."""

import numpy as np
import numpy.typing as npt

from benchmarks.traces import TraceName

Floats = npt.NDArray[np.float64]

# Table 4: sharing, density.
TABLE_4: dict[TraceName, tuple[float, float]] = {
    "sharegpt": (0.02, 3.12),
    "wildchat": (0.19, 2.13),
    "azure": (0.01, 33.2),
    "openvid": (0.00, 0.05),
    "burstgpt": (0.02, 17.78),
    "mmlu": (0.86, 54.91),
}

# Table 3: tokens a second of BlendServe with 1, 2 and 4 replicas.
TABLE_3 = {
    "trace 1": (11_080, 20_561, 41_928),
    "trace 2": (8_408, 16_261, 32_537),
    "trace 3": (8_403, 15_623, 32_026),
    "trace 4": (6_325, 12_246, 24_541),
}

# Mean gain over NanoFlow-DFS and share of the practical optimum, by figure and model.
GAIN_8B, GAIN_70B = "1.19-1.23, mean 1.208", "1.186"
OPTIMUM_8B, OPTIMUM_70B, OPTIMUM_OTHER_MODELS = 0.8655, 0.908, 0.899
GAIN_OTHER_MODELS = "mean 1.152, up to 1.244"
GAIN_OVER_RANDOM = 1.36  # traces 1 and 2
GAIN_OVER_VLLM_DFS = 1.44  # at most
SHARING_KEPT, SHARING_KEPT_RANDOM = 0.97, 0.30

TENTHS_9 = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)


def _cells(text: str) -> Floats:
    return np.array([[float(x) for x in row.split()] for row in text.split("|")])


FIG_11 = _cells(
    "1.15 1.15 1.16 1.16 1.16 | 1.14 1.15 1.15 1.15 1.15 | 1.19 1.19 1.20 1.21 1.20 |"
    "1.16 1.16 1.17 1.17 1.17 | 1.21 1.22 1.23 1.24 1.23 | 1.25 1.25 1.26 1.26 1.25 |"
    "1.23 1.23 1.23 1.24 1.24 | 1.25 1.25 1.26 1.26 1.26 | 1.24 1.25 1.25 1.25 1.26 |"
    "1.23 1.24 1.24 1.24 1.24 | 1.34 1.34 1.34 1.34 1.33 | 1.23 1.23 1.23 1.24 1.24 |"
    "1.23 1.23 1.24 1.24 1.24"
)
FIG_13 = _cells(
    "1.15 1.16 1.17 1.23 1.23 | 1.14 1.15 1.15 1.22 1.22 | 1.19 1.20 1.20 1.25 1.25 |"
    "1.22 1.23 1.23 1.31 1.30 | 1.20 1.20 1.21 1.27 1.26 | 1.18 1.18 1.19 1.22 1.21 |"
    "1.18 1.19 1.19 1.24 1.23 | 1.19 1.19 1.20 1.23 1.23 | 1.18 1.18 1.19 1.21 1.19"
)
FIG_14 = _cells(
    "1.08 1.09 1.10 1.10 1.10 | 1.09 1.10 1.10 1.11 1.11 | 1.11 1.12 1.13 1.12 1.12 |"
    "1.10 1.12 1.12 1.12 1.12 | 1.11 1.13 1.12 1.14 1.15 | 1.11 1.12 1.13 1.13 1.13 |"
    "1.15 1.16 1.16 1.17 1.17 | 1.15 1.15 1.16 1.17 1.16 | 1.14 1.14 1.14 1.14 1.15 |"
    "1.16 1.15 1.15 1.17 1.17"
)
FIG_15 = _cells(
    "1.08 1.07 1.08 1.09 1.10 | 1.08 1.09 1.10 1.10 1.11 | 1.13 1.14 1.14 1.15 1.15 |"
    "1.14 1.14 1.14 1.15 1.15 | 1.14 1.14 1.14 1.15 1.16 | 1.15 1.15 1.15 1.16 1.16 |"
    "1.14 1.15 1.15 1.15 1.15 | 1.15 1.15 1.15 1.15 1.16 | 1.14 1.14 1.14 1.14 1.15"
)
