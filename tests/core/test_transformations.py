"""jit, vmap, compile and gradients: no data-dependent shapes, finite where a row is masked."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
jax.config.update("jax_enable_x64", True)

KEPT = {"sink": 0, "convention": "kept"}
DROPPED = {"sink": 0, "convention": "dropped"}

ROW_FUNCTIONS = {
    "sink_mass": lambda p, **kw: sw.sink_mass(p, sink=0, **kw),
    "sink_balance": lambda p, **kw: sw.sink_balance(p, sink=0, **kw),
    "content_dispersion": lambda p, **kw: sw.content_dispersion(p, sink=0, **kw),
    "entropy": sw.entropy,
    "entropy_split": lambda p, **kw: sw.entropy_split(p, sink=0, **kw).content,
}
PAIR_FUNCTIONS = {
    "aitchison_distance": sw.aitchison_distance,
    "content_distance": lambda p, q, **kw: sw.content_distance(p, q, sink=0, **kw),
    "content_angle": lambda p, q, **kw: sw.content_angle(p, q, sink=0, **kw),
    "distance_split": lambda p, q, **kw: sw.distance_split(p, q, sink=0, **kw).direction,
    "entropy_change": lambda p, q, **kw: sw.entropy_change(p, q, sink=0, **kw).sink,
    "cosine": lambda p, q, **kw: sw.cosine_distance(p, q, **DROPPED, **kw),
    "cosine_kept": lambda p, q, **kw: sw.cosine_distance(p, q, **KEPT, **kw),
    "js_divergence": lambda p, q, **kw: sw.js_divergence(p, q, **KEPT, **kw),
    "js_distance": lambda p, q, **kw: sw.js_distance(p, q, **KEPT, **kw),
    "euclidean": lambda p, q, **kw: sw.euclidean_distance(p, q, **DROPPED, **kw),
    "kl": lambda p, q, **kw: sw.kl_divergence(p, q, **KEPT, **kw),
}
BOTH = ROW_FUNCTIONS | PAIR_FUNCTIONS


def arguments(name, rng, logits=False):
    z = rng.normal(size=(2, 4, 6))
    if not logits:
        z = np.exp(z)
        z /= z.sum(-1, keepdims=True)
    return tuple(z) if name in PAIR_FUNCTIONS else (z[0],)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("name", BOTH)
def test_jit_and_vmap_give_the_plain_values(name, logits):
    args = arguments(name, np.random.default_rng(0), logits)

    def f(*x):
        return BOTH[name](*x, logits=logits)

    expected = np.asarray(f(*args))
    arrays = [jax.numpy.asarray(a) for a in args]
    np.testing.assert_allclose(jax.jit(f)(*arrays), expected, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(f)(*arrays), expected, atol=1e-12)
    tensors = [torch.as_tensor(a) for a in args]
    np.testing.assert_allclose(torch.func.vmap(f)(*tensors), expected, atol=1e-12)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_traces_the_whole_function(name):
    torch._dynamo.reset()
    args = [torch.as_tensor(a) for a in arguments(name, np.random.default_rng(1))]
    compiled = torch.compile(BOTH[name], fullgraph=True, backend="eager")
    np.testing.assert_allclose(compiled(*args), BOTH[name](*args), atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_by_inductor():
    torch._dynamo.reset()
    p, q = (torch.as_tensor(a) for a in arguments("kl", np.random.default_rng(1)))

    def f(p, q):
        return sw.content_distance(p, q, sink=0) + sw.entropy_split(p, sink=0).total

    compiled = torch.compile(f, fullgraph=True)
    np.testing.assert_allclose(compiled(p, q), f(p, q), atol=1e-12)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("name", BOTH)
def test_gradients_agree_between_libraries_and_with_finite_differences(name, logits):
    args = arguments(name, np.random.default_rng(2), logits)

    def value(x, *rest):
        return BOTH[name](x, *rest, logits=logits, check=False).sum()

    by_jax = jax.grad(value)(*(jax.numpy.asarray(a) for a in args))
    tensors = [torch.tensor(a, requires_grad=True) for a in args]
    value(*tensors).backward()
    np.testing.assert_allclose(by_jax, tensors[0].grad, atol=1e-9)
    step = 1e-6
    for at in ((0, 0), (3, 4)):
        up, down = args[0].copy(), args[0].copy()
        up[at] += step
        down[at] -= step
        slope = (value(up, *args[1:]) - value(down, *args[1:])) / (2 * step)
        # central differences: step² · third derivative, and rounding / step
        assert float(by_jax[at]) == pytest.approx(float(slope), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("name", BOTH)
def test_C6_a_masked_row_leaves_every_gradient_finite(name, logits):
    args = [a.copy() for a in arguments(name, np.random.default_rng(3), logits)]
    where = np.ones((4, 6), bool)
    where[1] = False  # a dead row
    where[2, 4:] = False
    for a in args:
        a[1] = -np.inf if logits else 0
        a[2, 4:] = -np.inf if logits else 0

    def alive(xp, x, *rest, where):
        value = BOTH[name](x, *rest, where=where, logits=logits, check=False)
        return xp.where(where.any(-1), value, 0.0).sum()

    grads = jax.grad(lambda *a: alive(jax.numpy, *a, where=jax.numpy.asarray(where)))(
        *(jax.numpy.asarray(a) for a in args)
    )
    assert np.isfinite(grads).all()
    tensors = [torch.tensor(a, requires_grad=True) for a in args]
    alive(torch, *tensors, where=torch.as_tensor(where)).backward()
    for tensor in tensors:
        assert torch.isfinite(tensor.grad).all()
        assert (tensor.grad[1] == 0).all()


@pytest.mark.parametrize("name", [n for n in PAIR_FUNCTIONS if n not in ("entropy_change", "kl")])
def test_the_gradient_is_zero_where_a_distance_is_zero(name):
    p = np.random.default_rng(4).dirichlet(np.ones(5))
    a, b = torch.tensor(p, requires_grad=True), torch.tensor(p, requires_grad=True)
    PAIR_FUNCTIONS[name](a, b).backward()
    np.testing.assert_array_equal(a.grad, 0)
    np.testing.assert_array_equal(b.grad, 0)


def test_under_jit_shapes_are_checked_and_nan_propagates():
    with pytest.raises(sw.RowError, match="broadcast"):
        jax.jit(lambda p, q: sw.aitchison_distance(p, q))(jax.numpy.ones(3), jax.numpy.ones(4))
    bad = jax.numpy.asarray([np.nan, 0.5, 0.5])
    assert np.isnan(jax.jit(lambda p: sw.content_dispersion(p, sink=2))(bad))
    zero = jax.numpy.asarray([0.5, 0.5, 0.0])
    assert np.isnan(jax.jit(lambda p: sw.content_dispersion(p, sink=0))(zero))


def test_a_dead_row_is_nan_when_unchecked_and_an_error_when_checked():
    where = np.array([[True] * 3, [False] * 3])
    p = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 0.0]])
    for f in (sw.entropy, lambda p, **kw: sw.sink_mass(p, sink=0, **kw)):
        with pytest.raises(sw.RowError, match="row 1"):
            f(p, where=where)
        found = f(p, where=where, check=False)
        assert np.isfinite(found[0])
        assert np.isnan(found[1])
