"""Opcodes that are known and not modelled, with the reason."""

from arrowir.simulate.registry import refuse

refuse(
    "Dropout",
    why="which elements are dropped depends on the random state of the engine, of which neither the start nor the use "
    "is known",
)
refuse(
    *("Rand", "Rand2", "Rng"),
    why="which numbers the generator gives depends on the random state of the engine, of which neither the start nor "
    "the use is known",
)
refuse(
    *("GetRandState", "SetRandState", "RandGetState", "RandSetState"),
    why="what the random state of an engine holds, and how, is not known",
)
refuse(
    "MatmultSparse",
    why="which elements of the moving operand a compressed weight belongs to is not known",
)
