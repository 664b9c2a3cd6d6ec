"""Whole programs: a tiled product and an attention, instruction by instruction, against a few lines of numpy."""

import numpy as np
import pytest

import arrowir as air
from tests.programs import Attention, tiled_product

f32 = np.float32


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return causal attention of heads, in float64."""
    heads, length, depth = q.shape
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * depth**-0.5
    scores[np.broadcast_to(np.triu(np.ones((length, length), bool), 1), (heads, length, length))] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v.astype(np.float64)


def check_product(size: int, width: int) -> int:
    a, b = np.random.default_rng(1).standard_normal((2, size, size)).astype(f32)
    run = air.simulate(tiled_product(size, width), {"a": a, "b": b})
    assert np.allclose(run["c"], a.T.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)
    return run.steps


def check_attention(heads: int, length: int, depth: int, block: int) -> int:
    q, k, v = np.random.default_rng(2).standard_normal((3, heads, length, depth)).astype(f32)
    given = {name: array.reshape(-1, depth) for name, array in zip("qkv", (q, k, v), strict=True)}
    run = air.simulate(Attention(heads, length, depth, block).ir(), given, nan="raise")
    assert np.allclose(run["out"].reshape(q.shape), attention(q, k, v), rtol=1e-4, atol=1e-5)
    return run.steps


def test_a_tiled_product() -> None:
    assert check_product(256, 256) == 2 * (2 * 3 + 2)


@pytest.mark.parametrize(("heads", "length", "depth", "block"), [(1, 256, 64, 256), (2, 256, 128, 128)])
def test_attention(heads: int, length: int, depth: int, block: int) -> None:
    check_attention(heads, length, depth, block)


def test_attention_means_the_same_behind_the_passes() -> None:
    ir = Attention(1, 256, 64, 128).ir()
    found = air.equivalent(ir, air.run(ir).ir, trials=1)
    assert found.ok, found


@pytest.mark.slow
def test_a_product_of_2048() -> None:
    assert check_product(2048, 512) == 3200


@pytest.mark.slow
def test_an_attention_of_4000_instructions() -> None:
    assert check_attention(3, 2048, 128, 256) > 4000
