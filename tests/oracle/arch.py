"""What the passes need to know about the hardware and about data types."""

from tests.oracle.outcome import PassFailure

# M2: levels by name; the case counts.
LEVELS = {
    10: ("inferentia", "tonga", "inf1"),
    20: ("sunda", "gen2", "trainium", "trn1", "inf2"),
    30: ("gen3", "cayman", "trn2"),
    40: ("core_v4", "gen4", "mariana", "trn3"),
    50: ("core_v5", "trn4"),
}
# SBUF bytes per partition; level 50 has no hardware model.
CAPACITIES = {10: 96 * 1024, 20: 192 * 1024, 30: 224 * 1024, 40: 256 * 1024}

SIZES = {
    1: (
        "uint8",
        "int8",
        "bool",
        "float8e3",
        "float8e4",
        "float8e5",
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e8m0fnu",
    ),
    2: ("float4_e2m1fn_x4", "uint16", "int16", "bfloat16", "float16"),
    4: ("float8_e4m3fn_x4", "float8_e5m2_x4", "uint32", "int32", "float32", "float32r"),
    8: ("uint64", "int64"),
}


def level_of(arch: object) -> int | None:
    """M2: the level of an arch name."""
    return next((level for level, names in LEVELS.items() if arch in names), None)


def capacity_of(arch: object) -> int:
    """The SBUF bytes per partition of an arch (M2, N8)."""
    level = level_of(arch)
    if level not in CAPACITIES:
        raise PassFailure("unknown_arch", f"arch `{arch}` has no SBUF capacity; set `arch` to a known name")
    return CAPACITIES[level]


def itemsize_of(dtype: object) -> int:
    """Bytes of one element (U4)."""
    for size, names in SIZES.items():
        if dtype in names:
            return size
    raise PassFailure("unknown_dtype", f"dtype `{dtype}` has no known size")
