"""Matrices of mean distances between heads, and requests that are refused."""

import numpy as np
import pytest

from sinkwise.errors import InputTypeError, MemoryBudgetError, RowError
from sinkwise.rowdata import HeadId, RowBlock
from sinkwise.studies.distance_matrix import head_distances

SINK = 0


class Blocks:
    """A source over given blocks."""

    def __init__(self, blocks, n_heads):
        self._blocks = blocks
        self.heads = tuple(HeadId(i // 2, i % 2) for i in range(n_heads))
        self.n_documents = len(blocks)

    def blocks(self, skip=frozenset()):
        yield from (b for b in self._blocks if b.document not in skip)

    def card(self):
        return {}


def random_block(rng, document, *, heads=4, rows=5, keys=9, support=None):
    z = rng.normal(size=(heads, rows, keys)) * 2
    if support is None:
        support = np.arange(keys)[None] <= np.sort(rng.integers(3, keys, rows))[:, None]
    sink = np.zeros((rows, keys), bool)
    sink[:, SINK] = True
    return RowBlock(document, z, support, sink, np.arange(rows))


def clr(z):
    return z - z.mean(-1, keepdims=True)


def by_hand(blocks, n_heads, row_distance):
    """Mean over rows of a distance of two rows' visible log-weights, the sink first."""
    out = np.zeros((n_heads, n_heads))
    n = 0
    for b in blocks:
        for q in range(b.n_rows):
            z = b.log_weights[:, q, b.support[q]]
            n += 1
            for i in range(n_heads):
                for j in range(n_heads):
                    out[i, j] += row_distance(z[i], z[j])
    return out / n


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def js(p, q):
    m = (p + q) / 2
    return ((p * np.log(p / m)).sum() + (q * np.log(q / m)).sum()) / 2


def cosine(p, q):
    return 1 - p @ q / np.linalg.norm(p) / np.linalg.norm(q)


ROW_DISTANCES = {
    ("content", None): lambda x, y: np.linalg.norm(clr(x[1:]) - clr(y[1:])),
    ("aitchison", None): lambda x, y: np.linalg.norm(clr(x) - clr(y)),
    ("dispersion", None): lambda x, y: abs(np.linalg.norm(clr(x[1:])) - np.linalg.norm(clr(y[1:]))),
    ("content_angle", None): lambda x, y: np.arccos(min(1.0, 1 - cosine(clr(x[1:]), clr(y[1:])))),
    ("js_divergence", "kept"): lambda x, y: js(softmax(x), softmax(y)),
    ("js_divergence", "dropped"): lambda x, y: js(softmax(x[1:]), softmax(y[1:])),
    ("cosine", "kept"): lambda x, y: cosine(softmax(x), softmax(y)),
    ("cosine", "dropped"): lambda x, y: cosine(softmax(x[1:]), softmax(y[1:])),
    ("euclidean", "kept"): lambda x, y: np.linalg.norm(softmax(x) - softmax(y)),
    ("euclidean", "dropped"): lambda x, y: np.linalg.norm(softmax(x[1:]) - softmax(y[1:])),
}


@pytest.mark.parametrize(("metric", "convention"), ROW_DISTANCES)
def test_every_row_counts_once_whatever_its_document(metric, convention):
    rng = np.random.default_rng(0)
    blocks = [random_block(rng, d, rows=n) for d, n in enumerate((5, 2, 7))]
    got = head_distances(Blocks(blocks, 4), metric=metric, convention=convention)
    want = by_hand(blocks, 4, ROW_DISTANCES[metric, convention])
    np.fill_diagonal(want, 0)
    # divergences are taken in single precision, to 1e-6 and 1e-4 of their value; the rest is
    # float64, and the values here are not small enough for the written-out forms to cancel
    single = metric == "js_divergence"
    np.testing.assert_allclose(
        got, want, rtol=1e-4 if single else 1e-9, atol=1e-6 if single else 1e-12
    )
    assert (got == got.T).all()
    assert (np.diagonal(got) == 0).all()
    assert got.dtype == np.float64


def test_root_mean_square_forms_keep_the_exact_split():
    rng = np.random.default_rng(1)
    rows = Blocks([random_block(rng, d) for d in range(3)], 4)
    d = {
        name: head_distances(rows, metric=f"{name}_rms")
        for name in ("aitchison", "content", "balance", "within_sink", "dispersion", "direction")
    }
    np.testing.assert_allclose(
        d["aitchison"] ** 2,
        d["content"] ** 2 + d["balance"] ** 2 + d["within_sink"] ** 2,
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        d["content"] ** 2, d["dispersion"] ** 2 + d["direction"] ** 2, rtol=1e-10, atol=1e-12
    )
    content = head_distances(rows, metric="content")
    assert (d["content"] >= content).all() and (d["content"] != content).any()


def test_heads_without_a_common_support_are_nan():
    rng = np.random.default_rng(2)
    support = np.ones((3, 5, 9), bool)
    support[2, :, 1:4] = False  # the third head sees a window
    rows = Blocks([random_block(rng, 0, heads=3, support=support)], 3)
    d = head_distances(rows, metric="content")
    assert np.isfinite(d[0, 1]) and np.isnan(d[0, 2]) and np.isnan(d[2, 1])
    assert (np.diagonal(d) == 0).all()


def test_no_rows_are_nan_off_the_diagonal():
    d = head_distances(Blocks([], 3), metric="content")
    assert np.isnan(d[np.triu_indices(3, 1)]).all() and (np.diagonal(d) == 0).all()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"metric": "kullback"}, "unknown metric 'kullback'; there are content, content_angle"),
        ({"metric": "cosine"}, 'pass convention="kept"'),
        ({"metric": "cosine", "convention": "removed"}, "'removed', expected one of kept, dropped"),
        ({"metric": "cosine", "convention": "zeroed"}, "sinkwise.cosine_distance"),
        ({"metric": "content", "convention": "kept"}, "takes no convention"),
        ({"metric": "js_divergence/kept"}, "unknown metric"),
    ],
)
def test_refused_requests(request_, message):
    rows = Blocks([random_block(np.random.default_rng(3), 0)], 4)
    with pytest.raises(RowError, match=message):
        head_distances(rows, **request_)


def test_blocks_with_other_heads_are_refused():
    rng = np.random.default_rng(4)
    blocks = [random_block(rng, 0, heads=4), random_block(rng, 1, heads=3)]
    with pytest.raises(RowError, match=r"document 1 holds 3 heads but the source names 4"):
        head_distances(Blocks(blocks, 4), metric="content")


def test_arrays_are_not_rows():
    with pytest.raises(InputTypeError, match=r"ndarray.*sinkwise\.rows"):
        head_distances(np.ones((2, 3, 4)), metric="content")


def test_G7_a_hundred_thousand_heads_are_refused_with_an_estimate():
    class Huge:
        heads = range(100_000)
        n_documents = 1

        def blocks(self, skip=frozenset()):
            raise AssertionError("refuse before reading rows")

    with pytest.raises(MemoryBudgetError, match=r"74\.5 GiB for the matrix itself"):
        head_distances(Huge(), metric="content")
