"""scikit-bio, SciPy and 40 digits as second opinions."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw

KEPT = {"sink": 0, "convention": "kept"}


@pytest.fixture
def rows():
    return np.random.default_rng(0).dirichlet(np.ones(9), size=12)


def test_scikit_bio_agrees_on_the_simplex(rows):
    skbio = pytest.importorskip("skbio.stats.composition")
    np.testing.assert_allclose(sw.clr(rows), skbio.clr(rows), atol=1e-13)
    np.testing.assert_allclose(sw.closure(rows * 3), skbio.closure(rows * 3), atol=1e-15)
    np.testing.assert_allclose(sw.perturb(rows, rows[::-1]), skbio.perturb(rows, rows[::-1]))
    np.testing.assert_allclose(sw.power(rows, 0.3), skbio.power(rows, 0.3))
    np.testing.assert_allclose(
        sw.compositional_mean(rows, axis=0), skbio.closure(np.exp(np.log(rows).mean(0))), atol=1e-14
    )
    basis = sw.balance_basis(9, sink=(2, 5))
    np.testing.assert_allclose(sw.ilr(rows, basis=basis), skbio.ilr(rows, basis=basis), atol=1e-12)


def test_scikit_bio_agrees_on_zero_replacement():
    skbio = pytest.importorskip("skbio.stats.composition")
    p = np.array([[0.5, 0.25, 0.25, 0.0], [0.4, 0.0, 0.6, 0.0]])
    np.testing.assert_allclose(
        sw.replace_zeros(p, delta=0.01), skbio.multi_replace(p, delta=0.01), atol=1e-15
    )


def test_scipy_agrees_on_the_classical_measures(rows):
    from scipy.spatial import distance
    from scipy.stats import entropy

    for p, q in zip(rows, rows[::-1], strict=True):
        assert sw.js_distance(p, q, **KEPT) == pytest.approx(distance.jensenshannon(p, q))
        assert sw.cosine_distance(p, q, **KEPT) == pytest.approx(distance.cosine(p, q))
        assert sw.euclidean_distance(p, q, **KEPT) == pytest.approx(distance.euclidean(p, q))
        assert sw.kl_divergence(p, q, **KEPT) == pytest.approx(entropy(p, q))
        assert sw.entropy(p) == pytest.approx(entropy(p))
        c, d = p[1:] / p[1:].sum(), q[1:] / q[1:].sum()
        dropped = {"sink": 0, "convention": "dropped"}
        assert sw.js_distance(p, q, **dropped) == pytest.approx(distance.jensenshannon(c, d))
        assert sw.cosine_distance(p, q, **dropped) == pytest.approx(distance.cosine(c, d))
        zeroed = {"sink": 0, "convention": "zeroed"}
        assert sw.euclidean_distance(p, q, **zeroed) == pytest.approx(
            distance.euclidean(p[1:], q[1:])
        )
        assert sw.cosine_distance(p, q, **zeroed) == pytest.approx(
            float(sw.cosine_distance(p, q, **dropped))
        )


@pytest.mark.parametrize("s", [0.9, 0.999, 0.99999, 0.9999999])
def test_js_keeps_its_digits_near_sink_mass_one(s):
    """Against 40 digits; float32 logits in, relative error by their own rounding."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2, 12)).astype(np.float32)
    z[:, 0] = np.log(s / (1 - s) * 11) + rng.normal(size=2) * 0.3
    z = z.astype(np.float32)
    with mpmath.workdps(40):
        rows = []
        for row in z:
            e = [mpmath.exp(mpmath.mpf(float(x))) for x in row]
            rows.append([x / mpmath.fsum(e) for x in e])
        exact = float(
            mpmath.fsum(
                (a * mpmath.log(2 * a / (a + b)) + b * mpmath.log(2 * b / (a + b))) / 2
                for a, b in zip(*rows, strict=True)
            )
        )
        gap = float(mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(*rows, strict=True))))
    # exp of a log-weight of size 20 in float32: 20 · 2⁻²⁴ relative, twice that for squares
    got = float(sw.js_divergence(z[0], z[1], logits=True, **KEPT))
    assert got == pytest.approx(exact, rel=2e-5)
    assert float(sw.euclidean_distance(z[0], z[1], logits=True, **KEPT)) == pytest.approx(
        gap, rel=2e-5
    )
