"""Sinks found, the positional null and verdicts under several sink sets, on rows made to order."""

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId, KeyLabels, make_block
from sinkwise.runs.audit import audit
from sinkwise.studies.sinks import found_sinks


class Made:
    """A row source of given logits ``(documents, heads, rows, keys)`` with tokens."""

    def __init__(self, z, *, queries=None, sink=0, tokens=None, layers=1):
        self.z, self.sink, self.tokens = z, sink, tokens
        self.queries = np.arange(z.shape[2]) if queries is None else queries
        per_layer = z.shape[1] // layers
        self.heads = tuple(HeadId(h // per_layer, h % per_layer) for h in range(z.shape[1]))
        self.n_documents = len(z)

    def card(self):
        return {"sink": "first" if self.sink == 0 else [self.sink], "zeros": "none"}

    def blocks(self, skip=frozenset()):
        keys = self.z.shape[-1]
        for d, z in enumerate(self.z):
            tokens = None if self.tokens is None else np.array(self.tokens[d])
            yield make_block(
                document=d,
                log_weights=z,
                support=np.arange(keys) <= self.queries[:, None],
                sink=np.arange(keys) == self.sink,
                queries=self.queries,
                heads=self.heads,
                keys=KeyLabels(np.arange(keys), tokens, np.zeros(keys, bool)),
            )


def rng_logits(seed, documents=5, heads=6, rows=10, keys=40):
    rng = np.random.default_rng(seed)
    queries = np.arange(keys - rows, keys)
    return rng.normal(size=(documents, heads, rows, keys)), queries


def test_a_declared_sink_that_holds_the_mass_raises_no_warning():
    z, queries = rng_logits(0)
    z[..., 0] += 5
    evidence = audit(Made(z, queries=queries)).sinks()
    assert evidence.warning == ""
    top = evidence.positions.iloc[0]
    assert (top.position, top.declared) == (0, True) and top.mass > 0.6
    assert top["over_0.3"] == 1.0
    assert evidence.documents.found.tolist() == [(0,)] * 5


def test_a_sink_elsewhere_is_found_and_warned_of():
    z, queries = rng_logits(1)
    z[..., 4] += 6
    evidence = audit(Made(z, queries=queries)).sinks()
    assert 'sink="found"' in evidence.warning
    assert evidence.documents.strongest_other.tolist() == [4] * 5
    assert evidence.positions.iloc[0].position == 4
    found = audit(Made(z, queries=queries, sink=4)).sinks()
    assert found.warning == ""


def test_secondary_sinks_by_token_and_layer():
    z, queries = rng_logits(2, heads=8)
    z[..., 0] += 4
    tokens = [["<s>", *[f"w{i}" for i in range(1, 40)]] for _ in range(5)]
    for d, place in enumerate((2, 3, 5, 2, 7)):
        z[d, 4:, :, place] += 5  # the second layer's heads look at one word, wherever it is
        tokens[d][place] = " the"
    evidence = audit(Made(z, queries=queries, tokens=tokens, layers=2)).sinks()
    assert evidence.documents.found.tolist() == [(0, 2), (0, 3), (0, 5), (0, 2), (0, 7)]
    assert evidence.documents.tokens.iloc[0] == ("<s>", " the")
    assert evidence.tokens.iloc[0].token == " the"
    assert (evidence.tokens.iloc[0].occurrences, evidence.tokens.iloc[0].found) == (5, 5)
    assert "<s>" not in set(evidence.tokens.token)  # the declared sink is not its own rival
    layers = evidence.layers
    assert layers.secondary_mass[1] > 0.5 > layers.declared_mass[1]
    assert layers.declared_mass[0] > 0.5 > layers.secondary_mass[0]
    # a position's mass over documents is the mean of its columns
    p = np.exp(
        z
        - np.logaddexp.reduce(np.where(np.arange(40) <= queries[:, None], z, -np.inf), -1)[
            ..., None
        ]
    )
    np.testing.assert_allclose(evidence.positions.set_index("position").mass[0], p[..., 0].mean())


def test_without_a_fixed_declared_sink_there_is_nothing_to_warn_of():
    z, queries = rng_logits(3)
    found = audit(Made(z, queries=queries))
    assert found_sinks(found.store, found.heads).warning == ""


def test_the_positional_split_is_exact_and_matches_projection_by_hand():
    z, queries = rng_logits(4, documents=3, heads=4)
    found = audit(Made(z, queries=queries))
    null = found.positional_null()
    from sinkwise.accumulate.placement import offset_bins

    clr = []  # cells of every head, with their bins
    bins = []
    for d in range(3):
        for r, q in enumerate(queries):
            content = z[d, :, r, 1 : q + 1]
            clr.append(content - content.mean(-1, keepdims=True))
            indicators = np.eye(400)[offset_bins(q - np.arange(1, q + 1))]
            bins.append(indicators - indicators.mean(0))
    cells, onto = np.concatenate(clr, -1), np.concatenate(bins)
    n_rows = 3 * len(queries)
    for h in range(4):
        for k in range(h):
            difference = cells[h] - cells[k]
            fit = onto @ np.linalg.lstsq(onto, difference, rcond=None)[0]
            np.testing.assert_allclose(null.positional[h, k] ** 2, (fit**2).sum() / n_rows)
            rest = ((difference - fit) ** 2).sum() / n_rows
            own = [c - onto @ np.linalg.lstsq(onto, c, rcond=None)[0] for c in cells[[h, k]]]
            departures = sum((c**2).sum() for c in own) / n_rows
            np.testing.assert_allclose(null.beyond[h, k], 1 - rest / departures, atol=1e-10)
    whole = float((found.distances.content_rms.to_numpy() ** 2).sum())
    np.testing.assert_allclose(null.share, (null.positional**2).sum() / whole)
    assert null.low < null.share < null.high


def test_heads_alike_by_position_only_have_nothing_in_common_beyond_it():
    rng = np.random.default_rng(5)
    rows, keys = 40, 60
    queries = np.arange(keys - rows, keys)
    z = rng.normal(size=(6, 3, rows, keys))
    recency = -0.2 * (queries[:, None] - np.arange(keys))
    z[:, 0] += recency
    z[:, 1] += recency  # heads 0 and 1 both look at recent keys and share nothing else
    z[:, 2] = z[:, 0] + 0.1 * rng.normal(size=(6, rows, keys))  # head 2 reads as head 0 does
    null = audit(Made(z, queries=queries)).positional_null()
    assert abs(null.beyond[0, 1]) < 0.05
    assert null.beyond[0, 2] > 0.95
    nearest = null.nearest.set_index("head")
    assert nearest.nearest["L0H0"] == "L0H2"


def test_identical_heads_and_zero_rules():
    z, queries = rng_logits(6, heads=3)
    z[:, 1] = z[:, 0]
    null = audit(Made(z, queries=queries)).positional_null()
    assert null.positional[0, 1] == 0 and null.beyond[0, 1] == pytest.approx(1)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    p[0, 0, :, 3:5] = 0
    holed = sw.audit(sw.rows(p / p.sum(-1, keepdims=True), sink=0, zeros="exclude"))
    with pytest.raises(RowError, match="rounding zeros"):
        holed.positional_null()


def test_sink_sets_judge_the_same_rows():
    z, queries = rng_logits(7, documents=6, heads=7)
    z[..., 0] += np.linspace(0, 5, 7)[:, None]
    z[..., 2] += np.linspace(4, 0, 7)[:, None]
    found = audit(Made(z, queries=queries))
    table = found.sink_sets().set_index("sink_set")
    assert list(table.index) == ["declared", "first", "first4", "found"]  # no beginning token
    np.testing.assert_allclose(table.sink_mass["first"], table.sink_mass["declared"])
    assert table.against_declared["first"] == 0
    assert table["keys"]["first4"] == 4 and table["keys"]["found"] == 2
    assert table.sink_mass["first4"] > table.sink_mass["found"] > table.sink_mass["declared"]
    alone = audit(Made(z, queries=queries, sink=0))
    kept = alone.distances.js_divergence.sel(convention="kept").to_numpy()
    dropped = alone.distances.js_divergence.sel(convention="dropped").to_numpy()
    assert table.kept_vs_dropped["declared"] == sw.reversal_rate(kept, dropped)
    # under the first four, as an audit that declares them says
    four = sw.audit(sw.rows(softmax_of(z, queries), sink=(0, 1, 2, 3), where=seen(z, queries)))
    rate = sw.reversal_rate(
        four.distances.js_divergence.sel(convention="kept").to_numpy(),
        four.distances.js_divergence.sel(convention="dropped").to_numpy(),
    )
    assert table.kept_vs_dropped["first4"] == pytest.approx(rate, abs=0.02)
    np.testing.assert_allclose(table.sink_mass["first4"], four.profile.sink_mass.mean(), rtol=1e-6)


def seen(z, queries):
    return np.broadcast_to(np.arange(z.shape[-1]) <= queries[:, None], (len(z), *z.shape[2:]))


def softmax_of(z, queries):
    z = np.where(seen(z, queries)[:, None], z, -np.inf)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_no_sink_sets_and_too_few_heads():
    z, queries = rng_logits(8, heads=2)
    table = audit(Made(z, queries=queries), sink_sets=()).sink_sets()
    assert table.sink_set.tolist() == ["declared"]
    assert np.isnan(table.kept_vs_dropped[0]) and table.note[0]
    with pytest.raises(RowError, match="first4"):
        audit(Made(z, queries=queries), sink_sets=("last",))


def test_a_saved_run_says_the_same(tmp_path):
    z, queries = rng_logits(9)
    tokens = [[f"t{i}" for i in range(40)]] * 5
    fresh = audit(Made(z, queries=queries, tokens=tokens), out=tmp_path / "run")
    again = sw.open_audit(tmp_path / "run")
    assert again.sinks().positions.equals(fresh.sinks().positions)
    assert again.sink_sets().equals(fresh.sink_sets())
    assert again.positional_null().share == fresh.positional_null().share
    example = again.store.example(0)
    assert example.query == 39
    np.testing.assert_allclose(np.exp(example.log_weights).sum(-1), 1, rtol=1e-5)
