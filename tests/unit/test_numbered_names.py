"""Names with numbers behind them: the compute kernels, plain and compiled."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arrowir.names import numbered
from arrowir.store import Strings
from arrowir_kernels.numbered import fill_numbered, measure_numbered

numbers = st.one_of(st.integers(-1, 12), st.sampled_from([99, 100, 2**31, 10**18, 2**63 - 1]))


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5), st.data())
def test_numbered_names(names: list[str], data: st.DataObject) -> None:
    names = [name.encode(errors="ignore").decode() for name in names]
    rows = data.draw(st.lists(st.tuples(st.integers(0, len(names) - 1), numbers), max_size=8))
    source, number = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    expected = [names[s] + (f"-{n}" if n >= 0 else "") for s, n in rows]
    assert numbered(Strings.of(names), source, number, "-").tolist() == expected


def test_the_compiled_loops_do_the_same_as_the_plain_ones() -> None:
    random = np.random.default_rng(0)
    names = Strings.of(["", "a", "längerer Name", "I-1"])
    source, number = random.integers(0, 4, 500), random.integers(-1, 2000, 500)
    results = []
    for which in ("plain", "compiled"):
        offsets = np.empty(501, np.int64)
        getattr(measure_numbered, which)(names.offsets, source, number, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        getattr(fill_numbered, which)(names.offsets, names.data, source, number, ord("."), offsets, data)
        results.append((offsets.tobytes(), data.tobytes()))
    assert results[0] == results[1]
