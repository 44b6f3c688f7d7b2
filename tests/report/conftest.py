"""Real audits of invented rows, and a way to replace parts of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.studies.exchanged_pairs import closest_pairs, random_distances, sampled_pairs
from sinkwise.studies.interchange import ExchangePoint, InterchangeStudy, Singles
from sinkwise.studies.prune_study import PruneStudy

HOSTILE = "<script>alert(1)</script>"


class Changed:
    """An audit some of whose attributes, or answers of methods, a test replaced."""

    def __init__(self, audit, **changed):
        self._audit = audit
        self._changed = changed

    def __getattr__(self, name):
        found = getattr(self._audit, name)
        if name not in self._changed:
            return found
        value = self._changed[name]
        return (lambda *_, **__: value) if callable(found) else value

    def but(self, **changed) -> Changed:
        """Return the audit with these parts replaced."""
        return Changed(self, **changed)

    def renamed(self, labels) -> Changed:
        """Return the audit with other labels of heads."""
        profile = self.profile.assign_coords(label=("head", labels))
        distances = self.distances.assign_coords(label=("head", labels))
        return self.but(profile=profile, distances=distances)


def invented_rows(
    heads_per_layer: tuple[int, ...],
    *,
    documents: int = 8,
    rows: int = 6,
    keys: int = 12,
    seed: int = 0,
    common_keys: bool = True,
) -> sw.Rows:
    """Return rows of invented heads: a few content patterns, sinks that grow with depth.

    Without `common_keys` the first head has weights of 0 where the others have none, and the
    others where it has none: no log-ratio distance between them.
    """
    rng = np.random.default_rng(seed)
    layer = np.repeat(np.arange(len(heads_per_layer)), heads_per_layer)
    n_heads = layer.size
    patterns = rng.normal(size=(5, documents, rows, keys - 1))
    scale = rng.gamma(3.0, 0.5, size=(n_heads, 1, 1, 1))
    content = scale * patterns[rng.integers(0, 5, n_heads)]
    content += 0.5 * rng.normal(size=content.shape)
    sink = 2.0 * layer / max(1, layer.max()) + 1.5 * rng.normal(size=n_heads) + 2.0
    sink = sink[:, None, None, None] + 0.4 * rng.normal(size=(n_heads, documents, rows, 1))
    logits = np.concatenate([sink, content], axis=-1)
    if not common_keys:
        logits[0, ..., keys // 2 :] = -np.inf
        logits[1:, ..., 1 : keys // 2] = -np.inf
    logits = logits.swapaxes(0, 1)
    maps = tuple(logits[:, layer == number] for number in range(len(heads_per_layer)))
    return sw.rows(maps, sink="first", logits=True, zeros="error" if common_keys else "exclude")


def invented_audit(heads_per_layer: tuple[int, ...], **options) -> Changed:
    """Return the audit of :func:`invented_rows` with the card of a model."""
    audit = sw.audit(invented_rows(heads_per_layer, **options))
    card = audit.card() | {
        "model": "demo/Small-135M",
        "model_type": "llama",
        "revision": None,
        "sink": {"rule": "first", "positions": [0], "size": 1, "tokens": ["Chapter"]},
        "queries": 32,
        "dtype": "float32",
        "attn_implementation": "sdpa",
        "rows_excluded": {"few_content_parts": 3},
        "zero_sensitivity": [
            {"rule": "logits", "rate": 0.285, "mean_content_distance": 3.21},
            {"rule": "replace=1e-6", "rate": 0.301, "mean_content_distance": 2.98},
        ],
    }
    told = {name: card[name] for name in ("model", "sink", "rows_excluded")}
    return Changed(audit, card=card, summary=audit.summary() | told | {"card": card})


def invented_interchange(heads, *, measure="perplexity", documents=6, seed=0) -> InterchangeStudy:
    """Return a study in which a nearer pair does less damage, and random pairs do much."""
    rng = np.random.default_rng(seed)
    key = "loss" if measure == "perplexity" else "damage"
    base = 120 + rng.normal(size=documents) if key == "loss" else np.zeros(documents)

    def records(damage):
        added = damage * (40 if key == "loss" else 1) * (1 + 0.1 * rng.random(documents))
        return [{key: float(x), "tokens": 40} for x in base + added]

    n, points = len(heads), []
    for mode, scope, share in product(("split", "whole"), ("model", "layer"), (0.3, 0.5)):
        chosen = [("content", None, 0.2), ("js_divergence/kept", None, 0.3)]
        chosen += [("random", number, 0.6 + 0.1 * number) for number in range(3)]
        pairs = closest_pairs(random_distances(n, seed), heads, share, scope)
        points += [
            ExchangePoint(name, mode, scope, share, number, pairs, records(share * damage), 0.9)
            for name, number, damage in chosen
        ]
    near = random_distances(n, seed + 1)
    pairs = sampled_pairs({"content": near}, n, 20, donors=4, seed=seed)
    singles = Singles(
        pairs,
        {
            "content": [float(near[p]) for p in pairs],
            "cosine/kept": rng.random(len(pairs)).tolist(),
        },
        {("content", "k-medoids"): rng.integers(0, 3, n).tolist()},
        {mode: [records(0.1 * float(near[p])) for p in pairs] for mode in ("split", "whole")},
    )
    return InterchangeStudy(heads, measure, records(0.0), tuple(points), singles)


# how much worse than a random set a score's sets are, and whether it is a classical one
PRUNING_SCORES = {
    "fisher_matrix": (0.3, "joint", False),
    "joint_output": (0.32, "joint", False),
    "relative_output_norm": (0.35, "single", True),
    "michel": (0.45, "single", True),
    "flattest": (3.0, "single", False),
    "js_divergence/kept": (0.6, "pairs", True),
    "content": (4.0, "pairs", True),
    "random": (1.0, "random", False),
}


PREDICTED = {"verdict": "classical unsafe", "why": "heads differ in their sink mass"}


def invented_pruning(
    heads,
    *,
    metric="perplexity",
    documents=6,
    seed=0,
    sparsity=(0.1, 0.3),
    scores=PRUNING_SCORES,
    seeds=5,
    title="heads of {}",
    predicted=PREDICTED,
) -> PruneStudy:
    """Return a study in which a set's damage grows with its share, some scores worse than random.

    The score ``content`` ruins the model in the last cell.
    """
    rng = np.random.default_rng(seed)
    key = "loss" if metric == "perplexity" else "damage"
    tokens = 200 + rng.integers(0, 50, documents)
    base = 3.0 * tokens if key == "loss" else np.zeros(documents)

    def records(damage):
        added = damage * (tokens if key == "loss" else 1) * (1 + 0.1 * rng.normal(size=documents))
        both = zip(base + added, tokens, strict=True)
        return [{key: float(x), "tokens": int(n)} for x, n in both]

    cells = list(product(("zero", "mean"), ("model", "layer"), sparsity))
    points = []
    for operation, scope, share in cells:
        whole = 4 * share**2 * (1.0 if operation == "zero" else 0.6)
        for name, (factor, kind, _) in scores.items():
            for number in range(seeds) if kind == "random" else (None,):
                spread = 1.0 if number is None else 0.7 + 0.6 * number / (seeds - 1)
                found = records(factor * whole * spread)
                if name == "content" and (operation, scope, share) == cells[-1]:
                    found[0] = {key: None, "tokens": found[0]["tokens"]}
                order = rng.permutation(len(heads))[: max(1, round(share * len(heads)))]
                points.append(
                    {
                        "score": name,
                        "scope": scope,
                        "sparsity": share,
                        "seed": number,
                        "operation": operation,
                        "removed": [[heads[i].layer, heads[i].index] for i in order],
                        "documents": found,
                        "top1_agreement": float(np.exp(-factor * whole)),
                        "energy_ratio": 0.8 + 0.2 * factor + 0.1 * (number or 0),
                        "constant_share": 0.4,
                    }
                )
    protocol = {
        "metric": metric,
        "documents": documents,
        "tokens": int(tokens.sum()),
        "window": 256,
        "stride": None,
        "bos": False,
        "dtype": "float32",
    }
    return PruneStudy.from_points(
        dense={"metric": metric, "documents": records(0.0)},
        points=points,
        scores=[
            {
                "name": name,
                "title": title.format(name),
                "kind": kind,
                "classical": classical,
                "parameters": {},
            }
            for name, (_, kind, classical) in scores.items()
        ],
        card={"evaluation": protocol},
        predicted=predicted,
        seed=0,
        versions={"sinkwise": sw.__version__},
    )


@pytest.fixture(scope="session")
def middling():
    """Six layers of five heads over eight documents, with both studies of the model beside."""
    audit = invented_audit((5,) * 6)
    return audit.but(
        interchange=invented_interchange(audit.heads), pruning=invented_pruning(audit.heads)
    )


@pytest.fixture(scope="session")
def uneven():
    """Layers of different sizes."""
    audit = invented_audit((4, 2, 3), seed=1)
    return audit.but(
        interchange=invented_interchange(audit.heads, measure="cosine"),
        pruning=invented_pruning(audit.heads, metric="cosine"),
    )


@pytest.fixture(scope="session")
def tiny():
    """One layer of two heads and one document: no verdicts, no intervals."""
    return invented_audit((2,), documents=1, rows=3, keys=5, seed=2)


@pytest.fixture(scope="session")
def crowded():
    """More heads than a heat map draws singly."""
    return invented_audit((25,) * 18, documents=1, rows=1, keys=4, seed=5)


@pytest.fixture
def hostile():
    """Names, tokens and card entries that would run as code if they were not escaped."""
    audit = invented_audit((2, 2), seed=3)
    sink = {"rule": "first", "tokens": [HOSTILE, "</script><img src=x onerror=alert(2)>"]}
    changed = {"model": HOSTILE, "sink": sink}
    card = audit.card() | changed | {HOSTILE: {"note": HOSTILE}}
    card["zero_sensitivity"] = [{HOSTILE: HOSTILE}]
    summary = audit.summary() | changed
    summary["regime"] = summary["regime"] | {"why": HOSTILE}
    reversals = audit.reversals().assign(note=HOSTILE)
    named = audit.renamed([f"{HOSTILE}{i}" for i in range(4)])
    pruning = invented_pruning(
        audit.heads,
        scores={HOSTILE: (0.2, "joint", False), **PRUNING_SCORES},
        title=HOSTILE + "{}",
        predicted={"verdict": HOSTILE, "why": HOSTILE},
    )
    return named.but(card=card, summary=summary, reversals=reversals, pruning=pruning)


@pytest.fixture(scope="session")
def with_nan():
    """A head without a distance to any other, and without a sink mass."""
    audit = invented_audit((3, 3), seed=4, common_keys=False)
    profile = audit.profile.copy(deep=True)
    for name in ("sink_mass", "sink_mass_low", "sink_mass_high"):
        profile[name][0] = np.nan
    return audit.but(profile=profile)
