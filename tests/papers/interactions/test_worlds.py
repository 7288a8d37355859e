"""The worlds equal loops written from their descriptions, and their floors equal those of least squares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from madbench.errors import ConfigError
from madbench.papers.interactions.profile import TASKS
from madbench.papers.interactions.worlds import (
    WORLDS,
    Alliances,
    Colliding,
    Genotype,
    Hunters,
    Pixels,
    Plane,
    Series,
    sinusoids,
    wave_couplings,
)


def collisions(y: np.ndarray, x: np.ndarray, size: int, radius: int) -> np.ndarray:
    """The number of other discs that each disc hits, while all move right to x = size - 1 on a grid with periodic y."""
    met = np.zeros((len(y), len(y)), bool)
    for step in range(size):
        places = np.minimum(x + step, size - 1)
        for i, j in itertools.permutations(range(len(y)), 2):
            apart = abs(y[i] - y[j])
            apart = min(apart, size - apart)
            met[i, j] |= apart <= 2 * radius and abs(places[i] - places[j]) <= 2 * radius
    return met.sum(1)


def test_values_of_colliding_agents_count_simulated_collisions():
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


def test_alliances_count_pairs_of_allies_that_are_not_allied_with_each_other():
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
def test_sinusoids_are_orthogonal_and_represent_any_effect_of_differences(size):
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


@pytest.mark.slow
def test_the_floor_of_linear_attention_is_near_that_of_least_squares():
    world, fitted = Hunters(cells=2, reach=0, length=4), slice(0, 8000)
    symbols, values = world.data("train", 4, 0)
    counts = np.stack([np.bincount(row, minlength=world.symbols) for row in symbols]).repeat(4, axis=0)
    rows = world.vectors[symbols].reshape(-1, world.vectors.shape[1])
    inputs = np.einsum("nd,ns->nds", rows, counts).reshape(len(rows), -1)
    best, *_ = np.linalg.lstsq(inputs[fitted], values.ravel()[fitted], rcond=None)
    error, floor = np.square(inputs @ best - values.ravel()).mean(), world.floor("hfa", 1, 4)
    assert floor > 0.02 and floor <= error < 1.2 * floor  # the agent itself is one more term


def test_the_floor_of_sums_over_single_agents_equals_that_of_least_squares():
    world = Alliances(types=5, length=6, samples=4000)
    symbols, values = world.data("train", 6, 0)
    counts = np.stack([np.bincount(row, minlength=5) for row in symbols])
    errors = []
    for kind in range(5):
        sample, place = np.nonzero(symbols == kind)
        best, *_ = np.linalg.lstsq(counts[sample], values[sample, place], rcond=None)
        errors.append(np.square(counts[sample] @ best - values[sample, place]).mean())
    assert np.mean(errors) == pytest.approx(world.floor("hfa", 1, 6), rel=0.05)


def test_floors_of_worlds_have_the_documented_values():
    assert Hunters().floor("hfa", 1, 10) == pytest.approx(0.836, abs=5e-4)
    assert Alliances().floor("hfa", 3, 10) == pytest.approx(1.894, abs=5e-4)
    assert Colliding().floor("ha", 3, 10) is None and Colliding(control="distinct").floor("hfa", 1, 10) is None


def test_both_coordinates_decide_what_a_collision_costs():
    world = Plane(cells=6, near=1)
    symbols, values = world.data("test", 5, 0)
    for row, given in zip(symbols[:30], values):
        places = [divmod(int(symbol), 6) for symbol in row]
        for (x, y), value in zip(places, given):
            expected = 0
            for a, b in places:
                right, up = ((m - n) % 6 for m, n in ((x, a), (y, b)))
                right, up = min(right, 6 - right), min(up, 6 - up)
                expected -= (up <= 2) * (10 if max(right, up) <= 1 else 1)
            assert value == expected


def test_the_kronecker_embedding_has_couplings_that_give_the_plane():
    world = Plane(cells=4)
    assert np.allclose(world.vectors @ world.vectors.T, 4 * np.eye(16))  # (N / 2)^2
    c, w = world.solution
    np.testing.assert_allclose((world.vectors @ c @ world.vectors.T) * (world.vectors @ w), world.effects, atol=1e-12)


def test_the_activity_of_an_allele_is_the_share_of_its_present_activators():
    world = Genotype(alleles=9, length=5, fewest=2, samples=60, test_samples=60)
    kinds = {needed if needed is None else len(needed) for needed in world.activators}
    assert kinds >= {None, 0} and max(kinds - {None}) > 1
    for split, length in (("train", 5), ("test", 7)):
        symbols, values = world.data(split, length, 1)
        present = (symbols < 9).sum(1)
        assert set(present) == ({2, 3, 4, 5} if split == "train" else {7})
        for row, given in zip(symbols.tolist(), values):
            assert len({*row} - {9}) == sum(symbol < 9 for symbol in row)  # none twice
            for allele, value in zip(row, given):
                needed = None if allele == 9 else world.activators[allele]
                share = 0 if needed is None else sum(n in row for n in needed) / len(needed) if needed else 1
                assert value == pytest.approx(share)


def test_genotype_relations_depend_only_on_their_seed():
    assert Genotype().activators == Genotype(length=4).activators != Genotype(relations=1).activators


class Skewed(Pixels):
    OFFSETS = ((0, 0), (1, 2), (-1, 0))


@pytest.mark.parametrize("of", [Pixels, Skewed])
def test_a_pixel_counts_black_ones_at_the_offsets(of):
    world = of(rows=3, columns=4, length=8, test_samples=40)
    symbols, values = world.data("test", 8, 0)
    for row, given in zip(symbols, values):
        black = {divmod(int(symbol) % 12, 4): symbol >= 12 for symbol in row}
        assert len(black) == 8
        for symbol, value in zip(row, given):
            down, right = divmod(int(symbol) % 12, 4)
            assert value == sum(black.get((down + a, right + b), False) for a, b in of.OFFSETS)


def test_series_values_follow_from_the_two_delays():
    world = Series(steps=9, length=7, test_samples=40)
    symbols, values = world.data("test", 7, 0)
    assert len({int(row[0]) % 9 for row in symbols}) == 3  # windows begin anywhere
    for row, given in zip(symbols, values):
        m = {int(symbol) % 9: Series.LEVELS[int(symbol) // 9] for symbol in row}
        for symbol, value in zip(row, given):
            assert value == pytest.approx(0.5 * m.get(symbol % 9 - 2, 0) - 0.4 * m.get(symbol % 9 - 5, 0))


@pytest.mark.parametrize("world", [Pixels(length=4), Series(length=4)])
def test_the_solutions_of_pixels_and_series_give_their_effects(world):
    c, w = world.solution
    np.testing.assert_allclose((world.vectors @ c @ world.vectors.T) * (world.vectors @ w), world.effects, atol=1e-12)


AGENTS_OF_LONGEST_SAMPLE = {"genotype": 12, "pixels": 25, "series": 16}
"""The number of agents of the longest sample."""


@pytest.mark.parametrize("task", WORLDS)
def test_data_repeat_for_a_seed_and_differ_by_split_and_seed(task):
    world = WORLDS[task](samples=50, test_samples=50)
    drawn = [world.data(*which)[0] for which in (("train", 5, 0), ("test", 5, 0), ("train", 5, 1))]
    np.testing.assert_array_equal(drawn[0], world.data("train", 5, 0)[0])
    assert all((a != b).any() for a, b in itertools.combinations(drawn, 2))
    seen = set(np.unique(world.data("train", AGENTS_OF_LONGEST_SAMPLE.get(task, 60), 0)[0]))
    assert drawn[0].dtype == np.int64 and seen == set(range(world.symbols - (task == "genotype")))  # no empty place


def test_distinct_positions_never_repeat_and_limit_the_lengths():
    world = Colliding(positions=7, length=5, test_lengths=(2, 7, 8), samples=40, control="distinct")
    assert all(len({*row}) == 5 for row in world.data("train", 5, 0)[0])
    assert world.lengths == (2, 7)
    with pytest.raises(ConfigError, match="12 agents do not fit 7 distinct positions"):
        Colliding(positions=7, length=12, control="distinct")


def test_settings_that_define_no_world_are_refused():
    with pytest.raises(ConfigError, match="even"):
        Colliding(positions=7, embedding="sinusoidal")
    with pytest.raises(ConfigError, match="distinct lengths"):
        Hunters(test_lengths=(2, 2))
    with pytest.raises(ConfigError, match="length must be at least 1"):
        Alliances(length=0)
    with pytest.raises(ConfigError, match="even number, got 5"):
        Plane(cells=5)
    with pytest.raises(ConfigError, match="fewest 7 <= length <= alleles 12, got 6"):
        Genotype(length=6, fewest=7)
    with pytest.raises(ConfigError, match="26 pixels do not fit an image of 25"):
        Pixels(length=26)
    with pytest.raises(ConfigError, match="17 is more than the 16 steps"):
        Series(length=17)


def test_the_suite_names_every_world():
    assert tuple(WORLDS) == TASKS
