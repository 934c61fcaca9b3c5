"""Operations over the edges of a batch: against torch's and PyG's own, and where they may fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import leaky_relu
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import scatter, softmax

from pyg_graphzero import _core
from pyg_graphzero.nn import operators, ops

OPERATORS = torch.ops.pyg_graphzero
HALVES = (torch.bfloat16, torch.float16)


class Edges:
    """Edges grouped by destination, some before and behind them; hubs on both sides."""

    def __init__(self, num_dst=30, num_src=70, most=9, seed=0, extra=2):
        random = torch.Generator().manual_seed(seed)
        degrees = torch.randint(most + 1, (num_dst,), generator=random)
        degrees = degrees if num_src else torch.zeros_like(degrees)
        if num_dst > 3 and num_src:
            degrees[3] = 10 * most
        self.bounds = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]) + extra
        num_edges = int(self.bounds[-1]) + extra
        self.src = torch.randint(max(num_src, 1), (num_edges,), generator=random)
        self.src[::3] = 0
        self.src[:extra] = self.src[num_edges - extra :] = -(1 << 40)
        self.num_dst, self.num_src, self.num_edges = num_dst, num_src, num_edges
        self.used = slice(int(self.bounds[0]), int(self.bounds[-1]))
        self.dst = torch.repeat_interleave(degrees)

    def rows(self, *shape, of="src", dtype=torch.float64, grad=True):
        random = torch.Generator().manual_seed(1)
        size = {"src": self.num_src, "dst": self.num_dst, "edges": self.num_edges}[of]
        made = torch.randn(size, *shape, generator=random, dtype=torch.float64)
        return made.to(dtype).requires_grad_(grad)

    def messages(self, x, weight, mean):
        """A sum as torch does it: from an array of messages."""
        rows = x[self.src[self.used]]
        if weight is not None:
            weight = weight[self.used]
            rows = rows * weight.view(*weight.shape, *[1] * (rows.dim() - weight.dim()))
        sums = x.new_zeros(self.num_dst, *x.shape[1:]).index_add(0, self.dst, rows)
        degrees = self.bounds.diff().clamp(min=1)
        return sums / degrees.view(-1, *[1] * (x.dim() - 1)) if mean else sums


def assert_same(ours, expected, inputs, **tolerance):
    """Asserts equal values, and equal gradients of all inputs."""
    torch.testing.assert_close(ours, expected, **tolerance)
    inputs = [each for each in inputs if each is not None]
    if not inputs:
        return
    grad = torch.rand_like(expected)
    pairs = zip(
        torch.autograd.grad(ours, inputs, grad),
        torch.autograd.grad(expected, inputs, grad, retain_graph=True),
        strict=True,
    )
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, **tolerance)


EXACT = {"rtol": 0, "atol": 1e-10}

SIZES = {"num_dst": st.integers(0, 20), "num_src": st.integers(0, 20), "most": st.integers(0, 5)}

# Sums ---------------------------------------------------------------------------------------------


@given(
    **SIZES,
    channels=st.sampled_from([0, 1, 3, 8, 17, 40]),
    heads=st.sampled_from([None, 0, 1, 3]),
    weighted=st.sampled_from(["", "edges", "heads"]),
    mean=st.booleans(),
    seed=st.integers(0, 9),
)
def test_sums(num_dst, num_src, most, channels, heads, weighted, mean, seed):
    edges = Edges(num_dst, num_src, most, seed)
    x = edges.rows(channels) if heads is None else edges.rows(heads, channels)
    weight = None
    if weighted == "edges" or (weighted and heads is None):
        weight = edges.rows(of="edges")
    elif weighted:
        weight = edges.rows(heads, of="edges")
    given_edges = edges.src, edges.bounds
    expected = edges.messages(x, weight, mean)
    assert_same(ops.neighbor_sum(x, *given_edges, weight, mean), expected, (x, weight), **EXACT)
    fallback = operators.neighbor_sum.fallback(x, *given_edges, weight, mean)
    assert_same(fallback, expected, (x, weight) if num_src else (), **EXACT)


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_too_large_for_a_half_become_infinity(dtype):
    """Scalers of gradients go by it."""
    x = torch.full((1, 9), torch.finfo(dtype).max, dtype=dtype)
    x[0, 1:3] = torch.tensor([-torch.finfo(dtype).max, float("nan")])
    out = ops.neighbor_sum(x, torch.tensor([0, 0]), torch.tensor([0, 2]))
    assert torch.equal(out, x + x) or torch.allclose(out, x + x, equal_nan=True)


def test_weights_may_have_another_type():
    edges = Edges()
    x, weight = edges.rows(8, dtype=torch.bfloat16), edges.rows(of="edges", dtype=torch.float32)
    ours = ops.neighbor_sum(x, edges.src, edges.bounds, weight)
    assert ours.dtype == torch.bfloat16
    assert torch.equal(ours, edges.messages(x.float(), weight, False).bfloat16())
    ours.sum().backward()
    assert weight.grad.dtype == torch.float32


# Products and softmax -----------------------------------------------------------------------------


@given(
    **SIZES, channels=st.sampled_from([0, 1, 3, 16, 17, 40]), heads=st.sampled_from([None, 1, 3])
)
def test_products(num_dst, num_src, most, channels, heads):
    edges = Edges(num_dst, num_src, most)
    shape = (channels,) if heads is None else (heads, channels)
    q, k = edges.rows(*shape, of="dst"), edges.rows(*shape)
    products = (q[edges.dst] * k[edges.src[edges.used]]).sum(-1)
    expected = products.new_zeros(edges.num_edges, *products.shape[1:])
    expected = expected.index_put((torch.arange(edges.num_edges)[edges.used],), products)
    assert_same(ops.neighbor_dot(q, k, edges.src, edges.bounds), expected, (q, k), **EXACT)
    fallback = operators.edge_dot.fallback(q, k, edges.src, edges.bounds, False)
    assert_same(fallback, expected, (q, k) if num_src and num_dst else (), **EXACT)
    with torch.no_grad():
        mean = OPERATORS.edge_dot(q, k, edges.src, edges.bounds, True)
        fallback = operators.edge_dot.fallback(q, k, edges.src, edges.bounds, True)
        torch.testing.assert_close(fallback, mean, **EXACT)


@given(
    num_dst=st.integers(0, 20),
    most=st.integers(0, 9),
    heads=st.sampled_from([None, 0, 1, 4]),
    large=st.booleans(),
)
def test_softmax(num_dst, most, heads, large):
    edges = Edges(num_dst, 5, most)
    scores = edges.rows(*([] if heads is None else [heads]), of="edges", grad=False)
    scores = (scores * (1000 if large else 1)).requires_grad_()
    made = softmax(scores[edges.used], edges.dst, num_nodes=num_dst)
    expected = torch.zeros_like(scores).index_put(
        (torch.arange(edges.num_edges)[edges.used],), made
    )
    assert_same(ops.neighbor_softmax(scores, edges.bounds), expected, (scores,), **EXACT)
    fallback = operators.neighbor_softmax.fallback(scores, edges.bounds)
    assert_same(fallback, expected, (scores,), **EXACT)


def test_softmax_of_float32_over_all_of_exps_range():
    scores = -torch.arange(0, 120, 0.01).repeat(3, 1).t().contiguous()
    bounds = torch.tensor([0, len(scores)])
    expected = softmax(scores.double(), torch.zeros(len(scores), dtype=torch.int64))
    found = ops.neighbor_softmax(scores, bounds).double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-37)


def test_softmax_of_what_is_no_number():
    infinite = float("inf")
    scores = torch.tensor([1.0, -infinite, 2.0, -infinite, -infinite, 1.0, infinite, float("nan")])
    bounds = torch.tensor([0, 3, 5, 7, 8])
    expected = softmax(scores, torch.tensor([0, 0, 0, 1, 1, 2, 2, 3]))
    torch.testing.assert_close(ops.neighbor_softmax(scores, bounds), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_of_edges(dtype):
    edges = Edges()
    q, k = edges.rows(2, 20, of="dst", dtype=dtype), edges.rows(2, 20, dtype=dtype)
    made = ops.neighbor_dot(q, k, edges.src, edges.bounds)
    assert made.dtype == dtype
    wide = ops.neighbor_dot(q.float(), k.float(), edges.src, edges.bounds)
    assert torch.equal(made, wide.to(dtype))
    shares = ops.neighbor_softmax(wide.to(dtype), edges.bounds)
    assert torch.equal(shares, ops.neighbor_softmax(wide.to(dtype).float(), edges.bounds).to(dtype))


# Scores, the largest and the smallest -------------------------------------------------------------


@given(**SIZES, channels=st.sampled_from([0, 1, 3, 16, 17, 40]), heads=st.sampled_from([1, 3]))
def test_scores(num_dst, num_src, most, channels, heads):
    edges = Edges(num_dst, num_src, most)
    x_src, x_dst = edges.rows(heads, channels), edges.rows(heads, channels, of="dst")
    att = torch.randn(1, heads, channels, dtype=torch.float64, requires_grad=True)
    sums = x_src[edges.src[edges.used]] + x_dst[edges.dst]
    scores = (leaky_relu(sums, 0.3) * att).sum(-1)
    places = (torch.arange(edges.num_edges)[edges.used],)
    expected = scores.new_zeros(edges.num_edges, heads).index_put(places, scores)
    given_edges = edges.src, edges.bounds
    ours = ops.neighbor_score(x_src, x_dst, att, *given_edges, 0.3)
    assert_same(ours, expected, (x_src, x_dst, att), **EXACT)
    fallback = operators.neighbor_score.fallback(x_src, x_dst, att[0], *given_edges, 0.3)
    inputs = (x_src, x_dst, att) if num_src and num_dst else ()
    assert_same(fallback, expected, inputs, **EXACT)


@given(
    **SIZES,
    shape=st.sampled_from([(0,), (1,), (17,), (2, 9)]),
    ties=st.booleans(),
    is_min=st.booleans(),
)
def test_the_largest_and_the_smallest(num_dst, num_src, most, shape, ties, is_min):
    """Values and gradients are PyG's, also where sources tie and where a value is 0."""
    edges = Edges(num_dst, num_src, most)
    x = edges.rows(*shape, grad=False)
    x = (x.round() if ties else x).requires_grad_()
    rows = x[edges.src[edges.used]]
    expected = scatter(rows, edges.dst, 0, num_dst, "min" if is_min else "max")
    ours = (ops.neighbor_min if is_min else ops.neighbor_max)(x, edges.src, edges.bounds)
    assert_same(ours, expected, (x,), **EXACT)
    fallback = operators.neighbor_max.fallback(x, edges.src, edges.bounds, is_min)
    assert_same(fallback, expected, (x,) if num_src else (), **EXACT)


def test_the_largest_of_what_is_no_number():
    x = torch.tensor([[1.0, float("nan"), 3.0, -float("inf")]]).t().contiguous()
    src, bounds = torch.tensor([0, 1, 2, 1, 0, 3, 3]), torch.tensor([0, 3, 5, 6, 7])
    found = ops.neighbor_max(x, src, bounds).flatten()
    expected = scatter(x[src], torch.repeat_interleave(bounds.diff()), 0, 4, "max").flatten()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[2:], expected[2:])


# All of them --------------------------------------------------------------------------------------


def attention(edges, *inputs):
    """One of each, in a row."""
    return attention_of(edges.src, edges.bounds, *inputs)


def attention_of(src, bounds, q, k, weight):
    scores = ops.neighbor_dot(q, k, src, bounds) * weight
    scores = scores + ops.neighbor_score(k, q, k[:1] + q[:1], src, bounds)
    made = ops.neighbor_sum(k, src, bounds, ops.neighbor_softmax(scores, bounds), mean=True)
    return made + ops.neighbor_max(k, src, bounds)


def attention_inputs(edges, dtype=torch.float64, channels=5):
    made = edges.rows(2, channels, of="dst"), edges.rows(2, channels), edges.rows(2, of="edges")
    return [each.detach().to(dtype).requires_grad_() for each in made]


def test_gradients():
    edges = Edges(6, 9, 3)
    inputs = attention_inputs(edges)
    assert torch.autograd.gradcheck(lambda *given: attention(edges, *given), inputs)


def test_gradients_of_gradients():
    """Sums and products have second gradients; softmax raises an error."""
    edges = Edges(6, 9, 3)
    q, k, weight = attention_inputs(edges, channels=3)
    for mean in (False, True):
        assert torch.autograd.gradgradcheck(
            lambda k, w, mean=mean: ops.neighbor_sum(k, edges.src, edges.bounds, w, mean),
            (k, weight),
        )
    assert torch.autograd.gradgradcheck(
        lambda q, k: ops.neighbor_dot(q, k, edges.src, edges.bounds), (q, k)
    )
    (grad,) = torch.autograd.grad(attention(edges, q, k, weight).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of a gradient of neighbor_softmax"):
        grad.sum().backward()


def strided(tensor, way):
    """A tensor with these numbers and another layout in memory."""
    if way == "columns":  # of a wider array
        return torch.cat([tensor, tensor], -1)[..., : tensor.size(-1)]
    if way == "rows":  # every second one
        return tensor.repeat_interleave(2, 0)[::2]
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


@pytest.mark.parametrize("way", ["columns", "rows", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides(way, dtype):
    edges = Edges()
    inputs = attention_inputs(edges, dtype, 8)
    other = Edges()
    other.src, other.bounds = (
        edges.src.repeat_interleave(2)[::2],
        edges.bounds.repeat(2, 1).t()[:, 0],
    )
    moved = [strided(each, way) for each in inputs]
    assert not all(each.is_contiguous() for each in moved)
    ours, expected = attention(other, *moved), attention(edges, *inputs)
    assert torch.equal(ours, expected)
    ours.sum().backward()  # a gradient without memory of its own
    found = [each.grad.clone() for each in inputs]
    assert all(map(torch.equal, found, torch.autograd.grad(expected.sum(), inputs)))


def test_one_number_for_all_rows():
    edges = Edges()
    out = ops.neighbor_sum(torch.ones(()).expand(edges.num_src, 3), edges.src, edges.bounds)
    assert torch.equal(out, edges.bounds.diff().view(-1, 1).expand(-1, 3).float())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what the compiler imports
def test_compiled():
    edges = Edges()
    inputs = attention_inputs(edges, torch.float32)
    whole = torch.compile(attention_of, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        ours = whole(edges.src, edges.bounds, *inputs)
        assert_same(ours, attention(edges, *inputs), inputs)
        edges = Edges(seed=1, num_dst=31)  # of another size
        inputs = attention_inputs(edges, torch.float32)


def test_operators_are_what_torch_expects_of_them():
    edges = Edges(6, 9, 3)
    q, k, weight = attention_inputs(edges)
    shares = torch.rand(edges.num_edges, 2, dtype=torch.float64)
    scored = k, q, q[0].detach(), edges.src, edges.bounds
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    for name, *inputs in (
        ("neighbor_sum", k, edges.src, edges.bounds, weight, True, None),
        ("neighbor_sum", q, edges.src, edges.bounds, weight, True, edges.num_src),
        ("edge_dot", q, k, edges.src, edges.bounds, False),
        ("neighbor_softmax", weight, edges.bounds, None),
        ("neighbor_softmax", shares, edges.bounds, shares),
        ("neighbor_max", k, edges.src, edges.bounds, False),
        ("neighbor_max_backward", q, q, k, edges.src, edges.bounds),
        ("neighbor_score", *scored, 0.2),
        ("neighbor_score_backward", weight, *scored, 0.2),
        ("dropout", k, 0.5, 3),
        ("relu", k),
        ("relu_backward", k, k),
        ("product", k.flatten(1), q.flatten(1), None),
    ):
        operator = getattr(OPERATORS, name).default
        torch.library.opcheck(operator, tuple(inputs), test_utils=tests)


def test_checkpointed():
    edges = Edges()
    inputs = attention_inputs(edges)
    expected = attention(edges, *inputs)
    assert_same(
        checkpoint(attention, edges, *inputs, use_reentrant=False), expected, inputs, **EXACT
    )
    checkpoint(attention, edges, *inputs, use_reentrant=True).sum().backward()
    for each, grad in zip(inputs, torch.autograd.grad(expected.sum(), inputs), strict=True):
        torch.testing.assert_close(each.grad, grad, **EXACT)


def test_functional_transforms_are_refused():
    edges = Edges(6, 9, 3)
    q, k, weight = (each.detach() for each in attention_inputs(edges))
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda q: attention(edges, q, k, weight).sum())(q)


def test_autocast_leaves_types_alone():
    edges = Edges()
    x = edges.rows(4, 8, dtype=torch.float32)
    q = edges.rows(4, 8, of="dst", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.neighbor_sum(x, edges.src, edges.bounds).dtype == torch.float32
        scores = ops.neighbor_dot(q, x, edges.src, edges.bounds)
        assert scores.dtype == torch.float32
        rows = torch.nn.Linear(8, 8)(x)
        assert ops.neighbor_sum(rows, edges.src, edges.bounds, scores).dtype == torch.bfloat16


# Dropout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_dropout(p, dtype):
    x = torch.full((70, 301), 3.0, dtype=dtype, requires_grad=True)
    torch.manual_seed(1)
    out = ops.dropout(x, p)
    kept = out != 0
    share, count = 1 - p, x.numel()
    assert abs(int(kept.sum()) - count * share) <= 5 * (count * p * share) ** 0.5
    # as many in every column, and every row
    for dim in (0, 1):
        n = x.size(dim)
        assert ((kept.sum(dim) - n * share).abs() <= 6 * (n * p * share) ** 0.5).all()
    if p < 1:
        assert torch.equal(out[kept], (x / share)[kept].to(dtype))
    grad = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, grad)
    scale = torch.ones_like(x) / share if p < 1 else torch.zeros_like(x)
    torch.testing.assert_close(found, grad * scale * kept)


def test_dropout_is_a_function_of_torchs_random_state():
    x = torch.randn(5000, 8)
    torch.manual_seed(1)
    first, second = ops.dropout(x), ops.dropout(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    again = ops.dropout(x)
    torch.set_num_threads(2)
    assert torch.equal(first, again)
    out = checkpoint(
        lambda rows: ops.dropout(rows).square(), x.requires_grad_(), use_reentrant=False
    )
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad * x / 2, out)  # the second time as the first


def test_dropout_of_strides_of_nothing_and_of_what_is_not_trained():
    x = torch.randn(40, 60).t()
    out = ops.dropout(x)
    assert torch.equal(out[out != 0], (2 * x)[out != 0])
    assert ops.dropout(torch.zeros(0, 3)).shape == (0, 3)
    assert ops.dropout(torch.tensor(2.0), 0.0) == 2
    assert ops.dropout(x, training=False) is x
    given = torch.ones(100)
    assert ops.dropout(given, inplace=True) is given
    assert given.unique().tolist() == [0, 2]
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"p: found .*, expected a probability"):
            ops.dropout(x, p)
    with pytest.raises(ValueError, match="p: expected a probability"):
        _core.dropout(np.ones((1, 1, 1), np.float32), 2.0, 0, np.ones((1, 1, 1), np.float32))


# Arguments that do not fit ------------------------------------------------------------------------

X, SRC, BOUNDS = torch.zeros(3, 2), torch.tensor([0, 2, 1]), torch.tensor([0, 2, 3])


@pytest.mark.parametrize(
    ("error", "words", "changed"),
    [
        (IndexError, r"src\[1\]: found 3, expected a row of the 3", {"src": [0, 3, 1]}),
        (IndexError, r"src\[0\]: found -1, expected a row", {"src": [-1, 0, 1]}),
        (ValueError, r"bounds\[2\]: found 1 after 2, expected ascending", {"bounds": [0, 2, 1]}),
        (ValueError, "bounds: found -1 to 3, expected numbers", {"bounds": [-1, 2, 3]}),
        (ValueError, "bounds: found 0 to 4, expected .* the 3 edges", {"bounds": [0, 2, 4]}),
        (ValueError, "bounds: found none, expected one more than", {"bounds": []}),
        (ValueError, "src: found torch.int32", {"src": SRC.int()}),
        (ValueError, "bounds: found torch.int32", {"bounds": BOUNDS.int()}),
        (ValueError, r"src: found torch.int64 \[1, 3\]", {"src": SRC.view(1, 3)}),
        (ValueError, "x: found torch.int64, expected float32", {"x": X.long()}),
        (ValueError, r"x: found \[3\], expected rows", {"x": X[:, 0]}),
        (ValueError, r"weight: found .* \[2\], expected .* 3 edges", {"weight": torch.ones(2)}),
        (ValueError, r"weight: .* \[3, 2\], .* rows \[3, 2\]", {"weight": torch.ones(3, 2)}),
        (ValueError, "weight: found torch.int64", {"weight": SRC}),
        (ValueError, "x: found cpu and meta, expected all .* on one", {"src": SRC.to("meta")}),
    ],
)
def test_bad_input(error, words, changed):
    given = {"x": X, "src": SRC, "bounds": BOUNDS} | {
        name: torch.tensor(value, dtype=torch.int64) if isinstance(value, list) else value
        for name, value in changed.items()
    }
    with pytest.raises(error, match=words):
        ops.neighbor_sum(**given)


def test_bad_input_of_edges():
    with pytest.raises(ValueError, match=r"q: found torch.float32 \[3, 2\], expected .*\[2, 2\]"):
        ops.neighbor_dot(X, X, SRC, BOUNDS)
    with pytest.raises(ValueError, match=r"q: found torch\.float64"):
        ops.neighbor_dot(X[:2].double(), X, SRC, BOUNDS)
    with pytest.raises(IndexError, match=r"src\[1\]: found 2, expected a row of the 1"):
        ops.neighbor_dot(X[:2], X[:1], SRC, BOUNDS)
    with pytest.raises(ValueError, match=r"scores: found torch.float32 \[3, 1, 1\]"):
        ops.neighbor_softmax(X.view(3, 2, 1)[:, :1], BOUNDS)
    with pytest.raises(ValueError, match="the 2 edges"):
        ops.neighbor_softmax(torch.zeros(2), BOUNDS)
    heads = X.view(3, 1, 2)
    for words, changed in (
        (r"x_src: found \[3, 2\], expected rows", {"x_src": X}),
        (r"x_dst: found torch.float32 \[3, 1, 2\], expected .* \[2, 1, 2\]", {"x_dst": heads}),
        (r"att: found torch.float32 \[2\], expected \[1, 2\]", {"att": torch.ones(2)}),
    ):
        given = {"x_src": heads, "x_dst": heads[:2], "att": torch.ones(1, 2)}
        with pytest.raises(ValueError, match=words):
            ops.neighbor_score(**(given | changed), src=SRC, bounds=BOUNDS)
    with pytest.raises(IndexError, match=r"src\[1\]: found 2, expected a row of the 1"):
        ops.neighbor_max(X[:1], SRC, BOUNDS)
    with pytest.raises(IndexError, match=r"src\[0\]: found 7"):
        OPERATORS.neighbor_sum(X[:2], SRC + 7, BOUNDS, None, False, 3)
