"""A stand-in for an audit, computed from invented rows so that bands and splits really hold."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

HOSTILE = "<script>alert(1)</script>"
NAMES = (
    "content",
    "content_angle",
    "aitchison",
    *(f"{m}/{c}" for m in ("cosine", "js_divergence", "euclidean") for c in ("kept", "dropped")),
)
EPS = (0.3, 0.8)
PROFILE = (
    "sink_mass",
    "sink_balance",
    "content_dispersion",
    "content_dispersion_per_part",
    "entropy",
    "entropy_sink",
    "entropy_content",
    "entropy_within_sink",
    "content_entropy",
)


@dataclass
class SyntheticAudit:
    """What `write_report` reads of an audit."""

    profile: xr.Dataset
    distances: xr.Dataset
    reversal_frame: pd.DataFrame
    taxonomy_frame: pd.DataFrame
    card_values: dict
    summary_values: dict

    def reversals(self) -> pd.DataFrame:
        return self.reversal_frame

    def taxonomy(self) -> pd.DataFrame:
        return self.taxonomy_frame

    def card(self) -> dict:
        return self.card_values

    def summary(self) -> dict:
        return self.summary_values


def synthetic_audit(
    heads_per_layer: tuple[int, ...],
    *,
    documents: int = 8,
    rows: int = 12,
    keys: int = 24,
    seed: int = 0,
    sink_strength: float = 2.0,
) -> SyntheticAudit:
    """Return an audit of invented heads: a few content patterns, sinks that grow with depth."""
    rng = np.random.default_rng(seed)
    layer = np.repeat(np.arange(len(heads_per_layer)), heads_per_layer)
    index = np.concatenate([np.arange(n) for n in heads_per_layer])
    n_heads = layer.size
    patterns = rng.normal(size=(5, rows, keys - 1))
    scale = rng.gamma(3.0, 0.5, size=(n_heads, 1, 1))
    content = scale * patterns[rng.integers(0, 5, n_heads)]
    content += 0.5 * rng.normal(size=content.shape)
    sink = sink_strength * layer / max(1, layer.max()) + 1.5 * rng.normal(size=n_heads) + 2.0
    sink = sink[:, None, None] + 0.4 * rng.normal(size=(n_heads, rows, 1))
    logits = np.concatenate([sink, content], axis=-1)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)

    distances = _distances(p, layer, index)
    profile = _profile(p, layer, index, documents, rng)
    reversals = _reversals(distances, rng, documents) if n_heads >= 3 else _no_reversals()
    taxonomy = _taxonomy(n_heads) if n_heads >= 3 else _no_taxonomy()
    card = {
        "model": "demo/Small-135M",
        "model_type": "llama",
        "revision": None,
        "sink": {"rule": "first", "positions": [0], "size": 1, "tokens": ["Chapter"]},
        "conventions": ["kept", "dropped"],
        "zeros": "error",
        "queries": 32,
        "lengths": [256] * documents,
        "tokens": "sha256:0f3c2a",
        "dtype": "float32",
        "attn_implementation": "sdpa",
        "seed": seed,
        "versions": {"sinkwise": "0.1.0", "numpy": np.__version__},
        "rows_excluded": {"few_content_parts": 3},
        "zero_sensitivity": [
            {"rule": "logits", "rate": 0.285, "mean_content_distance": 3.21},
            {"rule": "replace=1e-6", "rate": 0.301, "mean_content_distance": 2.98},
        ],
    }
    summary = _summary(profile, reversals, taxonomy, card, documents, rows)
    return SyntheticAudit(profile, distances, reversals, taxonomy, card, summary)


def _coords(layer: np.ndarray, index: np.ndarray) -> dict:
    labels = [f"L{a}H{b}" for a, b in zip(layer, index, strict=True)]
    return {
        "head": np.arange(layer.size),
        "layer": ("head", layer),
        "index": ("head", index),
        "label": ("head", labels),
    }


def _profile(p, layer, index, documents, rng) -> xr.Dataset:
    pi = p[..., 1:] / p[..., 1:].sum(-1, keepdims=True)
    clr = np.log(pi) - np.log(pi).mean(-1, keepdims=True)
    s = p[..., 0]
    n = pi.shape[-1]
    h_pi = -(pi * np.log(pi)).sum(-1)
    h_b = -(s * np.log(s) + (1 - s) * np.log1p(-s))
    values = {
        "sink_mass": s,
        "sink_balance": np.sqrt(n / (n + 1)) * (np.log(s) - np.log(p[..., 1:]).mean(-1)),
        "content_dispersion": np.linalg.norm(clr, axis=-1),
        "content_dispersion_per_part": np.linalg.norm(clr, axis=-1) / np.sqrt(n),
        "entropy": h_b + (1 - s) * h_pi,
        "entropy_sink": h_b,
        "entropy_content": (1 - s) * h_pi,
        "entropy_within_sink": 0 * s,
        "content_entropy": h_pi,
    }
    data = {}
    for name, value in values.items():
        mean = value.mean(-1)
        half = 2.4 * value.std(-1) / np.sqrt(documents) if documents > 1 else np.nan * mean
        data[name] = ("head", mean)
        data[f"{name}_low"] = ("head", mean - half)
        data[f"{name}_high"] = ("head", mean + half)
    over = np.stack([(s > e).mean(-1) for e in EPS], axis=-1)
    for suffix, shift in (("", 0.0), ("_low", -0.02), ("_high", 0.02)):
        data[f"share_over{suffix}"] = (("head", "eps"), np.clip(over + shift, 0, 1))
    data["rows"] = ("head", np.full(layer.size, float(p.shape[1])))
    return xr.Dataset(data, coords=_coords(layer, index) | {"eps": list(EPS)})


def _distances(p, layer, index) -> xr.Dataset:
    n_heads, rows, _ = p.shape
    totals: dict[str, np.ndarray] = {}

    def add(name, value):
        totals[name] = totals.get(name, 0.0) + value / rows

    for r in range(rows):
        x = p[:, r]
        pi = x[:, 1:] / x[:, 1:].sum(-1, keepdims=True)
        n = pi.shape[1]
        for convention, q in (("kept", x), ("dropped", pi)):
            norm = np.linalg.norm(q, axis=-1)
            cosine = 1 - (q @ q.T) / np.outer(norm, norm)
            add(f"cosine/{convention}", np.clip(cosine, 0, None))
            difference = q[:, None] - q[None]
            add(f"euclidean/{convention}", np.linalg.norm(difference, axis=-1))
            m = (q[:, None] + q[None]) / 2
            h = -(q * np.log(q)).sum(-1)
            js = -(m * np.log(m)).sum(-1) - (h[:, None] + h[None]) / 2
            add(f"js_divergence/{convention}", np.clip(js, 0, None))
        clr = np.log(pi) - np.log(pi).mean(-1, keepdims=True)
        norm = np.linalg.norm(clr, axis=-1)
        balance = np.sqrt(n / (n + 1)) * (np.log(x[:, 0]) - np.log(x[:, 1:]).mean(-1))
        content = ((clr[:, None] - clr[None]) ** 2).sum(-1)
        dispersion = np.abs(norm[:, None] - norm[None])
        direction = np.clip(content - dispersion**2, 0, None)
        gap = np.abs(balance[:, None] - balance[None])
        parts = {
            "content": content,
            "dispersion": dispersion**2,
            "direction": direction,
            "balance": gap**2,
            "within_sink": 0 * gap,
            "aitchison": content + gap**2,
        }
        for name, square in parts.items():
            add(name, np.sqrt(square))
            add(f"{name}_rms", square)
        cosine = np.clip((clr @ clr.T) / np.outer(norm, norm), -1, 1)
        add("content_angle", np.arccos(cosine))
        u = np.maximum.outer(1 - x[:, 0], 1 - x[:, 0])
        add("larger_content_mass", u)
        add("cosine_ceiling", u**2 / (u**2 + (1 - u) ** 2))
    for name, value in totals.items():
        if name.endswith("_rms"):
            np.sqrt(value, out=value)
        if name not in ("larger_content_mass", "cosine_ceiling"):
            np.fill_diagonal(value, 0.0)
    data = {k: (("head", "other"), v) for k, v in totals.items() if "/" not in k}
    for metric in ("cosine", "js_divergence", "euclidean"):
        both = np.stack([totals[f"{metric}/kept"], totals[f"{metric}/dropped"]])
        data[metric] = (("convention", "head", "other"), both)
    coords = _coords(layer, index) | {"other": np.arange(n_heads)}
    return xr.Dataset(data, coords=coords | {"convention": ["kept", "dropped"]})


def _matrix(distances: xr.Dataset, name: str) -> np.ndarray:
    metric, _, convention = name.partition("/")
    array = distances[metric]
    return (array.sel(convention=convention) if convention else array).to_numpy()


def _reversals(distances, rng, documents) -> pd.DataFrame:
    n_heads = distances.sizes["head"]
    triples = rng.integers(0, n_heads, size=(20_000, 3))
    a, b, c = triples[
        (triples[:, 0] != triples[:, 1])
        & (triples[:, 0] != triples[:, 2])
        & (triples[:, 1] != triples[:, 2])
    ].T
    signs = {}
    for name in NAMES:
        d = _matrix(distances, name)
        signs[name] = np.sign(d[a, b] - d[a, c])
    records = []
    for first, second in combinations(NAMES, 2):
        rate = float(np.mean(np.abs(signs[first] - signs[second]) / 2))
        one = documents < 2
        records.append(
            {
                "first": first,
                "second": second,
                "rate": rate,
                "resolved_rate": np.nan if one else 0.8 * rate,
                "resolved_share": np.nan if one else 0.74,
                "low": np.nan if one else rate - 0.031,
                "high": np.nan if one else rate + 0.036,
                "bias": np.nan if one else 0.004,
                "smallest_detectable": np.nan if one else 0.041,
                "sampled_rate": rate,
                "note": "too few documents" if one else "",
            }
        )
    return pd.DataFrame.from_records(records)


def _no_reversals() -> pd.DataFrame:
    return pd.DataFrame(
        columns=[
            *("first", "second", "rate", "resolved_rate", "resolved_share", "low", "high"),
            *("bias", "smallest_detectable", "sampled_rate", "note"),
        ]
    )


def _no_taxonomy() -> pd.DataFrame:
    return pd.DataFrame(
        columns=[
            *("first", "second", "method", "k", "ari", "low", "high", "ceiling_first"),
            *("ceiling_second", "sizes_first", "sizes_second", "degenerate"),
        ]
    )


def _taxonomy(n_heads: int) -> pd.DataFrame:
    even = [n_heads - 4 * (n_heads // 5)] + [n_heads // 5] * 4
    chained = [n_heads - 4, 1, 1, 1, 1]
    names = ("js_divergence/kept", "js_divergence/dropped", "content", "content_angle")
    records = []
    for (first, second), average in zip(
        combinations(names, 2), (0.44, -0.01, 0.73, 0.02, 0.41, 0.09), strict=True
    ):
        for method in ("average", "k-medoids"):
            chain = method == "average" and "content" in (first, second)
            ari = average if method == "average" else 0.32
            records.append(
                {
                    "first": first,
                    "second": second,
                    "method": method,
                    "k": 5,
                    "ari": ari,
                    "low": ari - 0.08,
                    "high": ari + 0.07,
                    "ceiling_first": 0.87,
                    "ceiling_second": 0.94,
                    "sizes_first": even,
                    "sizes_second": chained if chain else even,
                    "degenerate": chain,
                }
            )
    return pd.DataFrame.from_records(records)


def _summary(profile, reversals, taxonomy, card, documents, rows) -> dict:
    mass = profile.sink_mass.to_numpy()
    layer = profile.layer.to_numpy()
    half = 0.02 if documents > 1 else float("nan")
    mean = float(mass.mean())
    return {
        "model": card["model"],
        "sink": card["sink"],
        "conventions": card["conventions"],
        "heads": int(mass.size),
        "layers": int(np.unique(layer).size),
        "documents": documents,
        "rows": rows,
        "rows_excluded": card["rows_excluded"],
        "sink_mass": {
            "mean": mean,
            "low": mean - half,
            "high": mean + half,
            "by_layer": [
                {
                    "layer": int(n),
                    "mean": float(mass[layer == n].mean()),
                    "low": float(mass[layer == n].mean() - half),
                    "high": float(mass[layer == n].mean() + half),
                }
                for n in np.unique(layer)
            ],
            "share_over": [{"eps": e, "share": float((mass > e).mean())} for e in EPS],
        },
        "reversals": reversals.to_dict("records"),
        "taxonomy": taxonomy.to_dict("records"),
        "regime": {"verdict": "abstain", "why": "sink dispersion lies between the thresholds"},
        "versions": card["versions"],
        "seed": card["seed"],
        "card": card,
    }


@pytest.fixture(scope="session")
def middling() -> SyntheticAudit:
    """Six layers of five heads over eight documents."""
    return synthetic_audit((5,) * 6)


@pytest.fixture(scope="session")
def uneven() -> SyntheticAudit:
    """Layers of different sizes."""
    return synthetic_audit((4, 2, 3), seed=1)


@pytest.fixture(scope="session")
def tiny() -> SyntheticAudit:
    """One layer of two heads and one document: no verdicts, no intervals."""
    return synthetic_audit((2,), documents=1, rows=3, keys=5, seed=2)


@pytest.fixture(scope="session")
def crowded() -> SyntheticAudit:
    """More heads than a heat map draws singly."""
    return synthetic_audit((25,) * 18, rows=1, keys=4, seed=5)


@pytest.fixture
def hostile() -> SyntheticAudit:
    """Names, tokens and card entries that would run as code if they were not escaped."""
    audit = synthetic_audit((2, 2), seed=3)
    audit.card_values["model"] = audit.summary_values["model"] = HOSTILE
    audit.card_values["sink"]["tokens"] = [HOSTILE, "</script><img src=x onerror=alert(2)>"]
    audit.card_values[HOSTILE] = {"note": HOSTILE}
    audit.card_values["zero_sensitivity"] = [{HOSTILE: HOSTILE}]
    audit.summary_values["regime"]["why"] = HOSTILE
    audit.reversal_frame["note"] = HOSTILE
    labels = [f"{HOSTILE}{i}" for i in range(4)]
    audit.profile = audit.profile.assign_coords(label=("head", labels))
    audit.distances = audit.distances.assign_coords(label=("head", labels))
    return audit


@pytest.fixture
def with_nan() -> SyntheticAudit:
    """Heads whose supports differ: no distance between them, no sink mass for one."""
    audit = synthetic_audit((3, 3), seed=4)
    for name, array in audit.distances.data_vars.items():
        values = array.to_numpy().copy()
        values[..., 0, 1:] = values[..., 1:, 0] = np.nan
        audit.distances[name] = (array.dims, values)
    mass = audit.profile.sink_mass.to_numpy().copy()
    mass[0] = np.nan
    audit.profile["sink_mass"] = ("head", mass)
    audit.reversal_frame.loc[:, ["rate", "low", "high"]] = np.nan
    audit.taxonomy_frame.loc[0, ["ari", "low", "high"]] = np.nan
    return audit
