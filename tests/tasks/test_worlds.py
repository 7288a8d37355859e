"""The worlds against loops written from their stories, and their floors against least squares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from madbench.errors import ConfigError
from madbench.suites.interactions.suite import TASKS
from madbench.tasks.worlds import (
    WORLDS,
    Alliances,
    Colliding,
    Hunters,
    sinusoids,
    wave_couplings,
)


def collisions(y: np.ndarray, x: np.ndarray, size: int, radius: int) -> np.ndarray:
    """How many other discs each meets while all move right until x = size - 1, on a grid whose y wraps."""
    met = np.zeros((len(y), len(y)), bool)
    for step in range(size):
        places = np.minimum(x + step, size - 1)
        for i, j in itertools.permutations(range(len(y)), 2):
            apart = abs(y[i] - y[j])
            apart = min(apart, size - apart)
            met[i, j] |= apart <= 2 * radius and abs(places[i] - places[j]) <= 2 * radius
    return met.sum(1)


def test_the_value_counts_the_discs_that_a_simulation_lets_collide():
    world, generator = Colliding(positions=9, radius=1), np.random.default_rng(0)
    for _ in range(20):
        y, x = generator.integers(9, size=(2, 6))
        given = world.values(y[None])[0]
        np.testing.assert_array_equal(given, -1 - collisions(y, x, 9, 1))  # and itself


def meets(world: Hunters, i: int, j: int) -> bool:
    (_, q, x, y, u), (_, p, a, b, v) = ([int(each[k]) for each in world.features] for k in (i, j))

    def ring(m, n):
        return min(abs(m - n), world.cells - abs(m - n)) <= world.reach

    return ring(u, v) if q != p else ring(y, b) if q == 0 else abs(x - a) <= world.reach


def test_prey_costs_its_hunter_nothing_and_is_lost_to_it():
    world = Hunters(cells=4, test_samples=30)
    symbols, values = world.data("test", 5, 3)
    species = world.features[0]
    for row, given in zip(symbols, values):
        for i, value in zip(row, given):
            others = [j for j in row if species[i] != species[j] and meets(world, i, j)]
            assert value == (len(others) if species[i] == 0 else -len(others))
    x, y, u = world.features[2:]
    assert ((x - y - u) % 4 == 0).all()


def test_alliances_count_pairs_of_allies_that_are_none_of_each_other():
    world = Alliances(types=5, test_samples=20)
    g = world.allied
    assert (g == g.T).all() and (g.diagonal() == 1).all()
    drawn = np.random.default_rng(0).random((5, 5)) < 0.5
    assert all(g[i, j] == drawn[i, j] for i, j in itertools.combinations(range(5), 2))
    symbols, values = world.data("test", 6, 0)
    for row, given in zip(symbols, values):
        for i, value in zip(row, given):
            assert value == sum(g[i, j] * g[i, k] * (1 - g[j, k]) for j, k in itertools.combinations(row, 2))


@pytest.mark.parametrize("size", [2, 4, 10])
def test_sinusoids_are_orthogonal_and_write_any_effect_of_a_difference(size):
    vectors = sinusoids(size)
    np.testing.assert_allclose(vectors @ vectors.T, size / 2 * np.eye(size), atol=1e-12)
    effect = np.random.default_rng(0).normal(size=size)
    given = vectors @ wave_couplings(effect) @ vectors.T
    expected = [[effect[(m - n) % size] for n in range(size)] for m in range(size)]
    np.testing.assert_allclose(given, expected, atol=1e-12)


def test_devised_weights_are_those_of_the_paper_at_its_size():
    world = Colliding(positions=360, radius=5, embedding="sinusoidal")
    c, w = world.solution
    assert c[0, 0] == pytest.approx(0.1167, abs=5e-5) and c[-1, -1] == pytest.approx(0.0056, abs=5e-5)
    effects = (world.vectors @ c @ world.vectors.T) * (world.vectors @ w)
    np.testing.assert_allclose(effects, world.effects, atol=1e-11)


def test_the_floor_of_linear_attention_is_what_least_squares_comes_near():
    world, fitted = Hunters(cells=2, reach=0, length=4), slice(0, 8000)
    symbols, values = world.data("train", 4, 0)
    counts = np.stack([np.bincount(row, minlength=world.symbols) for row in symbols]).repeat(4, axis=0)
    rows = world.vectors[symbols].reshape(-1, world.vectors.shape[1])
    inputs = np.einsum("nd,ns->nds", rows, counts).reshape(len(rows), -1)
    best, *_ = np.linalg.lstsq(inputs[fitted], values.ravel()[fitted], rcond=None)
    error, floor = np.square(inputs @ best - values.ravel()).mean(), world.floor("hfa", 1, 4)
    assert floor > 0.02 and floor <= error < 1.2 * floor  # the agent itself is one more term


def test_the_floor_of_sums_over_single_agents_is_what_least_squares_reaches():
    world = Alliances(types=5, length=6, samples=4000)
    symbols, values = world.data("train", 6, 0)
    counts = np.stack([np.bincount(row, minlength=5) for row in symbols])
    errors = []
    for kind in range(5):
        sample, place = np.nonzero(symbols == kind)
        best, *_ = np.linalg.lstsq(counts[sample], values[sample, place], rcond=None)
        errors.append(np.square(counts[sample] @ best - values[sample, place]).mean())
    assert np.mean(errors) == pytest.approx(world.floor("hfa", 1, 6), rel=0.05)


def test_known_floors():
    assert Hunters().floor("hfa", 1, 10) == pytest.approx(0.836, abs=5e-4)
    assert Alliances().floor("hfa", 3, 10) == pytest.approx(1.894, abs=5e-4)
    assert Colliding().floor("ha", 3, 10) is None and Colliding(control="distinct").floor("hfa", 1, 10) is None


@pytest.mark.parametrize("task", WORLDS)
def test_data_are_those_of_split_length_and_seed(task):
    world = WORLDS[task](samples=50, test_samples=50)
    drawn = [world.data(*which)[0] for which in (("train", 5, 0), ("test", 5, 0), ("train", 5, 1))]
    np.testing.assert_array_equal(drawn[0], world.data("train", 5, 0)[0])
    assert all((a != b).any() for a, b in itertools.combinations(drawn, 2))
    assert drawn[0].dtype == np.int64 and set(np.unique(world.data("train", 60, 0)[0])) == set(range(world.symbols))


def test_distinct_positions_never_repeat_and_have_no_longer_lengths():
    world = Colliding(positions=7, length=5, test_lengths=(2, 7, 8), samples=40, control="distinct")
    assert all(len({*row}) == 5 for row in world.data("train", 5, 0)[0])
    assert world.lengths == (2, 7)
    with pytest.raises(ConfigError, match="12 agents do not fit 7 distinct positions"):
        Colliding(positions=7, length=12, control="distinct")


def test_what_makes_no_world_is_refused():
    with pytest.raises(ConfigError, match="even"):
        Colliding(positions=7, embedding="sinusoidal")
    with pytest.raises(ConfigError, match="each once"):
        Hunters(test_lengths=(2, 2))
    with pytest.raises(ConfigError, match="length must be at least 1"):
        Alliances(length=0)


def test_the_suite_names_every_world():
    assert tuple(WORLDS) == TASKS
