"""Compute kernels: the compiled loop does what the plain one does, and there is always one that runs."""

import importlib
import os
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

import arrowir_kernels
from arrowir_kernels import jit
from arrowir_kernels.jit import Kernel

ROOT = Path(__file__).parents[2]
Arguments = tuple[Any, ...]


def offsets(random: Generator, rows: int) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(random.integers(0, 6, rows)))).astype(np.int64)


def letters(random: Generator, size: int, alphabet: bytes = b"ab.:_") -> np.ndarray:
    return random.choice(np.frombuffer(alphabet, np.uint8), size)


def names(random: Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    begins = offsets(random, rows)
    return begins, letters(random, int(begins[-1]))


def cut(random: Generator, first: int, second: int, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return runs of rows, each within one of two parts, some of them empty."""
    in_first = random.random(runs) < 0.5
    start = np.where(in_first, random.integers(0, first, runs), first + random.integers(0, second, runs))
    end = np.where(in_first, first, first + second)
    return start.astype(np.int64), random.integers(0, end - start + 1).astype(np.int64)


def two_parts(random: Generator) -> tuple[int, int, int]:
    return int(random.integers(1, 40)), int(random.integers(1, 40)), int(random.integers(0, 12))


def keys(random: Generator, rows: int, below: int = 50) -> np.ndarray:
    return random.integers(-1, below, rows).astype(np.int32)


def for_copy_bytes(random: Generator) -> Arguments:
    a, b, runs = two_parts(random)
    start, length = cut(random, a, b, runs)
    first, second = (random.integers(0, 256, n).astype(np.uint8) for n in (a, b))
    return first, second, start, length, np.zeros(int(length.sum()), np.uint8)


def for_shift_runs(random: Generator) -> Arguments:
    a, b, runs = two_parts(random)
    start, length = cut(random, a, b, runs)
    shift = random.integers(-9, 9, runs).astype(np.int64)
    return keys(random, a), keys(random, b), start, length, shift, np.zeros(int(length.sum()), np.int32)


def for_map_runs(random: Generator) -> Arguments:
    a, b, runs = two_parts(random)
    start, length = cut(random, a, b, runs)
    shift = random.integers(0, 50, runs).astype(np.int64)
    places = random.integers(-1, 1000, 100).astype(np.int32)
    return keys(random, a), keys(random, b), start, length, shift, places, np.zeros(int(length.sum()), np.int32)


def for_number_runs(random: Generator) -> Arguments:
    begins = np.cumsum(random.integers(0, 9, 2 * int(random.integers(0, 12))))
    start, end = begins[0::2].astype(np.int64), begins[1::2].astype(np.int64)
    value = random.integers(0, 2**31 - 200, len(start)).astype(np.int64)
    return start, end - start, value, np.full(200, -1, np.int32)


def for_fill_runs(random: Generator) -> Arguments:
    length = random.integers(0, 9, int(random.integers(0, 12))).astype(np.int64)
    dtype = random.choice([np.int8, np.int16, np.int32, np.int64])
    value = random.integers(-9, 9, len(length)).astype(dtype)
    return length, random.random(len(length)) < 0.5, value, random.integers(-2, 2, int(length.sum())).astype(dtype)


def for_measure_names(random: Generator) -> Arguments:
    a, b, runs = two_parts(random)
    start, length = cut(random, a, b, runs)
    extra = random.integers(0, 9, runs).astype(np.int64)
    return offsets(random, a), offsets(random, b), start, length, extra, np.zeros(int(length.sum()) + 1, np.int64)


def for_fill_names(random: Generator) -> Arguments:
    a, b, runs = two_parts(random)
    start, length = cut(random, a, b, runs)
    first, second, prefixes = names(random, a), names(random, b), names(random, 4)
    prefix = random.integers(-1, 4, runs).astype(np.int64)
    extra = np.where(prefix < 0, 0, np.diff(prefixes[0])[np.maximum(prefix, 0)])
    begins = np.zeros(int(length.sum()) + 1, np.int64)
    arrowir_kernels.measure_names.plain(first[0], second[0], start, length, extra, begins)
    return *first, *second, start, length, prefix, *prefixes, begins, np.zeros(int(begins[-1]), np.uint8)


def for_free_suffixes(random: Generator) -> Arguments:
    rows = int(random.integers(0, 60))
    scope = random.integers(0, 2, rows).astype(np.int32)
    fresh = (np.arange(rows) >= random.integers(0, rows + 1)).astype(np.int8)
    size = 1 << (2 * rows).bit_length()
    tables = (np.zeros(size, np.uint64), np.zeros(size, np.int32), np.zeros(size, np.int32))
    return *names(random, rows), scope, fresh, *tables, np.zeros(rows, np.int32)


def for_hash_names(random: Generator) -> Arguments:
    rows = int(random.integers(0, 60))
    scope = random.integers(0, 5, rows).astype(np.int64)
    return *names(random, rows), scope, ord("_"), np.zeros(rows, np.uint64)


def for_prefix_hits(random: Generator) -> Arguments:
    prefixes, rows = names(random, 6), int(random.integers(0, 60))
    hashes = np.zeros(6, np.uint64)
    wrapping(arrowir_kernels.hash_names.plain)(*prefixes, np.zeros(6, np.int64), ord("_"), hashes)
    scope = random.integers(0, 2, rows).astype(np.int64)
    return *names(random, rows), scope, ord("_"), np.sort(hashes), np.zeros(rows, np.int8)


def for_repeated_names(random: Generator) -> Arguments:
    rows = int(random.integers(0, 60))
    start, end = np.sort(random.integers(0, rows + 1, (2, 6)), axis=0).astype(np.int64)
    size = 2 << (2 * rows).bit_length()
    return (
        *names(random, rows),
        start,
        end - start,
        np.zeros(size, np.uint64),
        np.zeros(size, np.int64),
        np.zeros(6, np.int8),
    )


def for_mark_rows(random: Generator) -> Arguments:
    return keys(random, 20), np.zeros(50, bool)


def for_select_pointing(random: Generator) -> Arguments:
    target = keys(random, 20)
    return target, random.random(50) < 0.5, np.full(len(target), -1, np.int64)


def for_count_uses(random: Generator) -> Arguments:
    target = keys(random, 20)
    return target, random.integers(0, 3, len(target)).astype(np.int16), 2, np.zeros(50, np.int64), np.ones(50, np.int64)


def for_mark_differing(random: Generator) -> Arguments:
    target = keys(random, 20)
    named, lost = random.integers(-1, 3, (2, len(target))).astype(np.int32)
    return target, random.integers(0, 3, 50).astype(np.int32), named, lost, np.zeros(len(target), np.int8)


def for_mark_ends(random: Generator) -> Arguments:
    rows = random.integers(1, 9, int(random.integers(0, 9))).astype(np.int64)
    start, edges = np.cumsum(rows) - rows, random.integers(0, 12, len(rows)).astype(np.int64)
    begin = np.repeat(start, edges)
    waiting = (begin + random.integers(0, 1 << 30, len(begin)) % np.repeat(rows, edges)).astype(np.int32)
    on = (begin + random.integers(-2, 10, len(begin))).astype(np.int32)
    marks = [np.zeros(n, np.int8) for n in (int(rows.sum()), int(rows.sum()), len(begin))]
    return (
        start,
        rows - random.integers(0, 2, len(rows)),
        rows,
        np.cumsum(edges) - edges,
        edges,
        waiting,
        on,
        start,
        *marks,
    )


def for_list_unmarked(random: Generator) -> Arguments:
    base = np.concatenate(([0], np.cumsum(random.integers(0, 6, int(random.integers(0, 9)))))).astype(np.int64)
    marks = (random.random(int(base[-1])) < 0.6).astype(np.int8)
    return base, marks, np.full(len(base), -1, np.int64), np.full(len(marks), -1, np.int64)


def for_increase_runs(random: Generator) -> Arguments:
    start, length = random.integers(0, 20, 9).astype(np.int64), random.integers(0, 6, 9).astype(np.int64)
    by = random.integers(-3, 4, 9).astype(np.int64)
    return start, length, by, random.random(30) < 0.5, random.integers(0, 9, int(length.sum())).astype(np.int64)


def for_place_clones(random: Generator) -> Arguments:
    rows, copies = 20, int(random.integers(1, 6))
    first, size = random.integers(0, 10, copies), random.integers(0, 10, copies)
    base = np.cumsum(size) - size
    runs = np.sort(random.integers(0, copies, 5))
    length = np.minimum(random.integers(0, 4, 5), size[runs])
    start = first[runs] + (size[runs] - length) * random.integers(0, 2, 5)
    places = np.full(int(size.sum()), -7, np.int32)
    return (
        random.permutation(rows).astype(np.int32),
        base,
        base - first,
        runs,
        start,
        length,
        random.integers(0, 50, 5),
        places,
    )


def for_find_children(random: Generator) -> Arguments:
    column = np.sort(random.integers(0, 30, int(random.integers(0, 90)))).astype(np.int32)
    start, length = random.integers(0, 32, 20).astype(np.int64), random.integers(0, 4, 20).astype(np.int64)
    if random.random() < 0.5:
        start.sort()
    return column, start, length, np.full(20, -1, np.int64), np.full(20, -1, np.int64)


def for_reach_over(random: Generator) -> Arguments:
    rows = int(random.integers(2, 12))
    edges = random.integers(0, 4, rows)
    first = np.concatenate(([0], np.cumsum(edges))).astype(np.int64)
    on = keys(random, int(first[-1]), rows)
    gap = (random.random(rows) < 0.6).astype(np.int8)
    start = np.flatnonzero((on >= 0) & (gap[on] > 0))
    work = [np.zeros(rows, np.int64), *(np.zeros(int(gap.sum()) + 1, np.int64) for _ in range(2))]
    return first, on, gap, start, *work, np.full(20, -1, np.int64), np.full(20, -1, np.int64)


def for_mark_moved(random: Generator) -> Arguments:
    rows = int(random.integers(0, 60))
    group = np.sort(random.integers(0, 4, rows)).astype(np.int64)
    work = np.zeros(rows, np.int64)
    return group, random.permutation(rows).astype(np.int64), work, work.copy(), np.zeros(rows, np.int8)


def numbers(random: Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows = int(random.integers(1, 20))
    source = random.integers(0, rows, int(random.integers(0, 60))).astype(np.int64)
    number = random.choice([-1, 0, 9, 10, 99, 100, 2**31, 2**62], len(source)).astype(np.int64)
    return *names(random, rows), source, number


def for_measure_numbered(random: Generator) -> Arguments:
    begins, _, source, number = numbers(random)
    return begins, source, number, np.zeros(len(source) + 1, np.int64)


def for_fill_numbered(random: Generator) -> Arguments:
    from arrowir_kernels.numbered import measure_numbered

    begins, data, source, number = numbers(random)
    made = np.zeros(len(source) + 1, np.int64)
    measure_numbered.plain(begins, source, number, made)
    return begins, data, source, number, ord("-"), made, np.zeros(int(made[-1]), np.uint8)


def for_nest_spans(random: Generator) -> Arguments:
    start = random.integers(0, 30, int(random.integers(0, 12)))
    end = start + random.integers(0, 12, len(start))
    order = np.lexsort((-end, start))
    return start[order], end[order], np.zeros(len(start), np.int64), np.full(len(start), -1)


def for_reached_over(random: Generator) -> Arguments:
    start = np.sort(random.integers(0, 30, int(random.integers(1, 12))))
    end = start + random.integers(1, 12, len(start))
    first = np.sort(random.integers(0, 30, int(random.integers(1, 12))))
    low, high = (np.searchsorted(np.sort(end), at, side="right") for at in (first, first + random.integers(0, 9)))
    rank = np.argsort(np.argsort(end, kind="stable"), kind="stable")
    return start, rank, first, low, high, np.zeros(len(start) + 1, np.int64), np.zeros(len(first), np.int8)


def graph(random: Generator, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of nodes in order of their source: where those of each node start, and their targets."""
    source = np.sort(random.integers(0, nodes, int(random.integers(0, 3 * nodes))))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=nodes)))).astype(np.int64)
    return bounds, random.integers(0, nodes, len(source))


def for_peel(random: Generator) -> Arguments:
    nodes = int(random.integers(1, 12))
    return *graph(random, nodes), np.zeros(nodes, np.int64), np.full(nodes, -1)


def for_trace_blocks(random: Generator) -> Arguments:
    nodes = int(random.integers(1, 12))
    bounds, target = graph(random, nodes)
    source = np.repeat(np.arange(nodes), np.diff(bounds))
    entries = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=nodes)))).astype(np.int64)
    marks = (np.zeros(n, np.int8) for n in (nodes, len(target), len(target)))
    backwards = source[np.argsort(target, kind="stable")]
    return np.array([0, nodes]), bounds, target, entries, backwards, np.zeros(5 * nodes, np.int64), *marks


CASES: dict[str, Callable[[Generator], Arguments]] = {
    name.removeprefix("for_"): made for name, made in globals().items() if name.startswith("for_")
}


def all_kernels() -> dict[str, Kernel[Any, Any]]:
    """Every compute kernel of the package, whether it is exported or not."""
    found: dict[str, Kernel[Any, Any]] = {}
    for info in pkgutil.iter_modules(arrowir_kernels.__path__):
        module = importlib.import_module(f"arrowir_kernels.{info.name}")
        found |= {name: value for name, value in vars(module).items() if isinstance(value, Kernel)}
    return found


KERNELS = all_kernels()
TABLES = {
    "count_uses": (3,),
    "find_children": (3,),
    "free_suffixes": (4, 5, 6),
    "list_unmarked": (2,),
    "repeated_names": (4, 5),
    "mark_ends": (8, 9),
    "mark_moved": (2, 3),
    "nest_spans": (1, 2),
    "peel": (2,),
    "trace_blocks": (5, 6, 7),
    "reach_over": (4, 5, 6, 7),
    "reached_over": (5,),
}
"""Arguments that a loop works in, beside the last one, which each fills."""


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return call


def results(function: Callable[..., Any], arguments: Arguments, *, read_only: bool) -> list[bytes]:
    """Run on copies, of which those that are not to be written may be made read-only; return all arrays."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    written = {len(copies) - 1, *TABLES.get(function.__name__, ())}
    if read_only:
        for number, argument in enumerate(copies):
            if isinstance(argument, np.ndarray) and number not in written:
                argument.setflags(write=False)
    wrapping(function)(*copies)
    for number, argument in enumerate(copies):
        if number not in written and isinstance(argument, np.ndarray):
            assert np.array_equal(argument, arguments[number])
    return [a.tobytes() for a in copies if isinstance(a, np.ndarray)]


def test_every_kernel_has_a_case() -> None:
    assert set(KERNELS) == set(CASES)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_x01_compiled_and_plain_agree_on_writable_and_read_only_arrays(name: str) -> None:
    kernel = KERNELS[name]
    compiled, plain = kernel.compiled, kernel.plain
    compiled.__name__ = name
    wrote = False
    for seed in range(40):
        arguments = CASES[name](np.random.default_rng(seed))
        expected = results(plain, arguments, read_only=False)
        assert results(plain, arguments, read_only=True) == expected
        assert results(compiled, arguments, read_only=False) == expected
        assert results(compiled, arguments, read_only=True) == expected
        wrote |= expected[-1] != arguments[-1].tobytes()
    assert wrote


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float64, bool])
def test_copy_runs_takes_every_dtype(dtype: type) -> None:
    random = np.random.default_rng(3)
    first, second = ((random.random(n) * 200 - 100).astype(dtype) for n in (20, 10))
    start, length = np.array([25, 0, 20, 7, 29]), np.array([5, 20, 0, 1, 1])
    out = np.empty(27, dtype)
    arrowir_kernels.copy_runs(first, second, start, length, out)
    both = np.concatenate((first, second))
    assert np.array_equal(out, np.concatenate([both[a : a + n] for a, n in zip(start, length, strict=True)]))


# by hand: what each loop is for


def test_shift_runs_leaves_absent_keys() -> None:
    out = np.zeros(4, np.int32)
    first, second = np.array([4, -1, 5], np.int32), np.array([6, -1], np.int32)
    arrowir_kernels.shift_runs(first, second, np.array([1, 3]), np.array([2, 2]), np.array([10, -1]), out)
    assert out.tolist() == [-1, 15, 5, -1]


def test_map_runs_looks_up_what_is_present() -> None:
    out = np.zeros(4, np.int32)
    first, places = np.array([0, -1, 1], np.int32), np.array([7, 8, 9], np.int32)
    arrowir_kernels.map_runs(first, first[:0], np.array([0, 1]), np.array([2, 2]), np.array([1, 0]), places, out)
    assert out.tolist() == [8, -1, -1, 8]


def test_reach_over_follows_edges_in_their_order_and_passes_each_gap_once() -> None:
    # 4 waits for 3 and 2; 3 for 2 and 0; 2 for 1, 3 and a mere name. 2 and 3 go.
    first, on = np.array([0, 0, 0, 3, 5, 7]), np.array([1, 3, -1, 2, 0, 3, 2], np.int32)
    gap, start = np.array([0, 0, 1, 1, 0], np.int8), np.array([5, 6])
    found = [np.full(6, -1), np.full(6, -1)]
    work = [np.zeros(5, np.int64), np.zeros(3, np.int64), np.zeros(3, np.int64)]
    assert arrowir_kernels.reach_over(first, on, gap, start, *work, *found) == 6
    assert found[0].tolist() == [0, 0, 0, 1, 1, 1]
    assert found[1].tolist() == [0, 2, 4, 0, 4, 2]
    work[0][:] = 0
    nowhere = np.zeros(0, np.int64)
    assert arrowir_kernels.reach_over(first, on, gap, start, *work, nowhere, nowhere) == 6


def test_number_runs_counts_on() -> None:
    out = np.full(6, -1, np.int32)
    arrowir_kernels.number_runs(np.array([1, 4]), np.array([2, 1]), np.array([7, 0]), out)
    assert out.tolist() == [-1, 7, 8, -1, 0, -1]


# which loop runs


def double(values: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(values)):
        out[row] = values[row] * 2


def doubled(kernel: Kernel[Any, Any], rows: int = 3) -> list[int]:
    out = np.zeros(rows, np.int64)
    kernel(np.arange(rows), out)
    return out.tolist()


def test_small_work_does_not_import_numba() -> None:
    script = """
    import sys
    import numpy as np
    from arrowir_kernels import number_runs
    from arrowir_kernels.jit import THRESHOLD
    for rows in (10, THRESHOLD):
        out = np.zeros(rows, np.int32)
        number_runs(np.array([0]), np.array([rows]), np.array([5]), out)
        assert out[-1] == rows + 4
        print("numba" in sys.modules)
    """
    assert python(script).split() == ["False", "True"]


def test_numba_missing_is_one_warning_per_loop_and_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    kernel = jit.kernel(double)
    with pytest.warns(RuntimeWarning, match="numba is not installed") as caught:
        found = [doubled(kernel) for _ in range(2)]
    assert found == [[0, 2, 4]] * 2
    assert len(caught) == 1


@pytest.mark.parametrize("value", ["1", "true"])
def test_numba_switched_off_runs_the_plain_loop(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
    calls: list[int] = []

    def counted(values: np.ndarray, out: np.ndarray) -> None:
        calls.append(len(values))
        double(values, out)

    assert doubled(jit.kernel(counted), 40_000)[-1] == 79_998
    assert calls == [40_000]


def python(script: str, **environment: str) -> str:
    """Run a script in a process of its own; warnings are printed."""
    paths = os.pathsep.join([str(ROOT / "kernels"), str(ROOT)])
    known = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(script)],
        env={**known, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


LOOP = """
import numpy as np
from arrowir_kernels.jit import kernel


def fill(values, out):
    for row in range(len(values)):
        out[row] = values[row] * 3


fill = kernel(fill)
"""

RUN = """
import numpy as np, sys
sys.path.insert(0, {folder!r})
import loops
for _ in range(2):
    out = np.zeros(40_000, np.int64)
    loops.fill(np.arange(40_000), out)
    assert out[-1] == 3 * 39_999
print("done", loops.fill.compiled is not loops.fill.plain)
"""


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    """A module with one loop, in a folder of its own."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loops.py").write_text(LOOP)
    return tmp_path / "code"


def test_x04_a_cache_folder_that_cannot_be_written_is_one_warning(loops: Path, tmp_path: Path) -> None:
    # Files stand where Numba would make its folders; that stops a privileged user as well.
    (loops / "__pycache__").write_text("in the way")
    (tmp_path / "home").write_text("in the way")
    home = str(tmp_path / "home")
    environment = {"HOME": home, "XDG_CACHE_HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    said = python(RUN.format(folder=str(loops)), **environment)
    assert said.count("RuntimeWarning") == 1
    assert "NUMBA_CACHE_DIR" in said
    assert "done True" in said


@pytest.mark.parametrize(
    ("suffix", "damage"), [(".nbc", "truncated"), (".nbc", "garbage"), (".nbi", "truncated"), (".nbi", "empty")]
)
def test_a_damaged_cache_file_is_survived(loops: Path, tmp_path: Path, suffix: str, damage: str) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(RUN.format(folder=str(loops)), **environment) == "done True\n"
    files = list((tmp_path / "cache").rglob(f"*{suffix}"))
    assert files
    for file in files:
        data = file.read_bytes()
        file.write_bytes({"truncated": data[: len(data) // 2], "empty": b"", "garbage": b"\x80garbage"}[damage])
    assert python(RUN.format(folder=str(loops)), **environment) == "done True\n"
