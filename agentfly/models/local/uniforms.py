"""Random numbers that depend on a request's seed and a position alone, never on the rest of the batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
SEED_MASK = (1 << 64) - 1


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 17)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each pair of a seed and a position.

    The positions of a seed are the draws of one SplitMix64 generator. Its starting state is the
    mixed seed, so that neighbouring seeds don't give shifted copies of one sequence.

    Args:
        seeds, positions: of one shape.
    """
    state = _mix(seeds + _GAMMA) + (positions + np.uint64(1)) * _GAMMA
    return (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
