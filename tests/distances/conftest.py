"""Random blocks of rows, and a float64 oracle that loops over rows and pairs in plain sight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sinkwise.rowdata import HeadId, RowBlock, make_block

UNIFORM = 4


def _js(p, q):
    m = (p + q) / 2
    terms = [0.5 * x * np.log(x / y) for a in (p, q) for x, y in zip(a, m, strict=True) if x > 0]
    return float(np.sum(terms))


def _cosine(p, q):
    u, v = p / np.sqrt(p @ p), q / np.sqrt(q @ q)
    return 0.5 * float((u - v) @ (u - v))


def _clr(x):
    return x - x.mean()


def _uniform(x, eps):
    depth = max(1.0, float(np.max(x.max() - x)))
    return float(_clr(x) @ _clr(x)) <= len(x) * (UNIFORM * eps * depth) ** 2


def _pair(x, y, content, sink, eps):
    """All measures of one pair on one row: (values, names of the counts it belongs to)."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    out, counts = {}, {"rows"}
    with np.errstate(invalid="ignore"):
        p, q = (np.exp(z - z[content | sink].max()) * (content | sink) for z in (x, y))
    p, q = np.where(p > 0, p, 0), np.where(q > 0, q, 0)
    pc, qc = p[content].sum(), q[content].sum()
    if pc == 0 or qc == 0:
        return {}, set()
    cp, cq = pc / p.sum(), qc / q.sum()
    p, q = p / p.sum(), q / q.sum()
    pi, rho = p[content] / p[content].sum(), q[content] / q[content].sum()
    for convention, a, b in (("kept", p, q), ("dropped", pi, rho)):
        out[f"cosine/{convention}"] = _cosine(a, b)
        out[f"js_divergence/{convention}"] = _js(a, b)
        out[f"euclidean/{convention}"] = float(np.sqrt((a - b) @ (a - b)))
    if sink.sum() == 1:
        counts.add("band_rows")
        big = max(cp, cq)
        small = min(p[sink].sum(), q[sink].sum())
        out["larger_content_mass"] = big
        out["cosine_ceiling"] = 1 - small**2 / (small**2 + big**2)
    both = np.isfinite(x) & np.isfinite(y)
    c, s = content & both, sink & both
    if c.sum() < 2:
        return out, counts
    counts.add("content_rows")
    a, b = _clr(x[c]), _clr(y[c])
    out["content_sq"] = float((a - b) @ (a - b))
    na, nb = np.sqrt(a @ a), np.sqrt(b @ b)
    out["dispersion_sq"] = (na - nb) ** 2
    out["direction_sq"] = 0.0
    if not (_uniform(x[c], eps) or _uniform(y[c], eps)):
        counts.add("angle_rows")
        u, v = a / na, b / nb
        chord, other = np.sqrt((u - v) @ (u - v)), np.sqrt((u + v) @ (u + v))
        out["direction_sq"] = na * nb * chord**2
        out["content_angle"] = 2 * np.arctan2(chord, other)
    if s.sum() >= 1:
        counts.add("balance_rows")
        n, r = c.sum(), s.sum()
        gap = (x[s].mean() - x[c].mean()) - (y[s].mean() - y[c].mean())
        out["balance_sq"] = r * n / (r + n) * gap**2
        w = _clr(x[s]) - _clr(y[s])
        out["within_sink_sq"] = float(w @ w)
        full = _clr(x[c | s]) - _clr(y[c | s])
        out["aitchison_sq"] = float(full @ full)
    for name in [name for name in out if name.endswith("_sq")]:
        out[name.removesuffix("_sq")] = float(np.sqrt(out[name]))
    return out, counts


@pytest.fixture(scope="session")
def oracle() -> Callable[[RowBlock], tuple[dict, dict]]:
    """Sums and counts of a block by loops over rows and pairs, in float64."""

    def compute(block: RowBlock) -> tuple[dict, dict]:
        heads = block.n_heads
        pairs = [(i, j) for i in range(heads) for j in range(i + 1, heads)]
        sums: dict[str, np.ndarray] = {}
        counts: dict[str, np.ndarray] = {}
        support = np.broadcast_to(block.support, block.log_weights.shape)
        eps = float(np.finfo(block.log_weights.dtype).eps)
        for number, (i, j) in enumerate(pairs):
            for row in range(block.n_rows):
                valid = block.valid[i, row] and block.valid[j, row]
                if not valid or (support[i, row] != support[j, row]).any():
                    continue
                seen, sink = support[i, row], block.sink[row]
                x, y = block.log_weights[i, row], block.log_weights[j, row]
                values, names = _pair(x, y, seen & ~sink, seen & sink, eps)
                for name, value in values.items():
                    sums.setdefault(name, np.zeros(len(pairs)))[number] += value
                for name in names:
                    counts.setdefault(name, np.zeros(len(pairs)))[number] += 1
        return sums, counts

    return compute


@pytest.fixture(scope="session")
def block_of() -> Callable[..., RowBlock]:
    """Random block by recipe: what stands in the keywords, and nothing else, is unusual."""

    def build(
        seed: int = 0,
        *,
        heads: int = 6,
        rows: int = 5,
        keys: int = 19,
        dtype: type = np.float32,
        scale: float = 2.0,
        sinks: tuple[int, ...] = (0,),
        sink_mass: float | None = None,
        causal: bool = False,
        windows: tuple[int, ...] = (),
        zeros: float = 0.0,
        masses_apart: bool = False,
        touch: Callable[[np.ndarray], None] | None = None,
    ) -> RowBlock:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(heads, rows, keys)) * scale + rng.normal(size=(heads, rows, 1)) * 5
        sink = np.zeros(keys, dtype=bool)
        sink[list(sinks)] = True
        queries = np.arange(keys - rows, keys)
        reach = np.arange(keys) <= queries[:, None] if causal else np.ones((rows, keys), bool)
        reach = reach | sink
        if sink_mass is not None:  # move the sink so that its mass is near the one asked for
            target = np.log(sink_mass / (1 - sink_mass)) + 0.3 * rng.normal(size=(heads, rows))
            if masses_apart:
                target -= 5 * rng.random(size=(heads, 1))
            inside = np.where(reach & ~sink, x, -np.inf)
            top = np.log(np.exp(x[..., sink]).sum(-1))
            x[..., sink] += (np.log(np.exp(inside).sum(-1)) + target - top)[..., None]
        if touch is not None:
            touch(x)
        if zeros:
            x[rng.random(x.shape) < zeros] = -np.inf
        support = reach
        if windows:  # head h sees a window of windows[h % len(windows)] keys, and the sink
            width = np.array([windows[h % len(windows)] for h in range(heads)])
            near = queries[:, None] - np.arange(keys) < width[:, None, None]
            support = reach & (near | sink)
        return make_block(
            document=0,
            log_weights=x.astype(dtype),
            support=support,
            sink=sink,
            queries=queries,
            heads=[HeadId(h // 3, h % 3) for h in range(heads)],
        )

    return build
