"""Operations over the edges of a sampled batch, without an array of messages.

Edges are grouped by destination: those into destination ``d`` are ``bounds[d]`` to before
``bounds[d + 1]``, and ``src[e]`` is the row of the node that edge ``e`` comes from. Edges before
``bounds[0]`` and from ``bounds[-1]`` on have no destination: they count nowhere, and results by
edge are 0 for them.

- Numbers may be float32, float64, bfloat16 or float16. Sums are taken in float32 (float64 of
  float64) and rounded once, to the type of the rows that went in; weights may have another type.
  ``torch.autocast`` changes nothing here, as it changes nothing of PyG's own messages: what a
  linear layer before has rounded comes in rounded.
- On the CPU the engine does it, and results have the same bits for any number of threads. On other
  devices torch's own functions do it, with an array of messages while they do.
- They work under ``torch.compile``, ``torch.utils.checkpoint``, ``torch.func.grad`` and ``vmap``
  (one after the other); there is no forward-mode derivative (``jvp``). Sums, means and products
  can be differentiated any number of times; the others raise the second time.
- Bounds or sources that do not fit raise :class:`ValueError` or :class:`IndexError` on the CPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_graphzero.nn import operators


def neighbor_sum(
    x: Tensor, src: Tensor, bounds: Tensor, weight: Tensor | None = None, mean: bool = False
) -> Tensor:
    """The sum, or mean, over every destination's in-edges of the sources' rows.

    Args:
        x: Rows of the sources, ``[num_src, channels]`` or ``[num_src, heads, channels]``.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.
        weight: Factor of each row, ``[num_edges]`` or ``[num_edges, heads]``.
        mean: Whether sums are divided by the number of in-edges.

    Returns:
        ``[num_dst, ...]`` of the type of ``x``; 0 where there are no in-edges.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> src, bounds = torch.tensor([0, 2, 1]), torch.tensor([0, 2, 2, 3])
        >>> gz.nn.ops.neighbor_sum(x, src, bounds).tolist()
        [[5.0], [0.0], [2.0]]
    """
    return operators.neighbor_sum(x, src, bounds, weight, mean)


def neighbor_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The product of every edge's destination's row and its source's.

    Args:
        q: Rows of the destinations, ``[num_dst, channels]`` or ``[num_dst, heads, channels]``.
        k: Rows of the sources, of the same shape and type.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.

    Returns:
        ``[num_edges]`` or ``[num_edges, heads]``.
    """
    return operators.edge_dot(q, k, src, bounds, False)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    """Softmax over every destination's in-edges, as :func:`torch_geometric.utils.softmax`.

    Args:
        scores: ``[num_edges]`` or ``[num_edges, heads]``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.

    Returns:
        Shares of the shape and type of ``scores``.
    """
    return operators.neighbor_softmax(scores, bounds)


def neighbor_score(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    edge: Tensor | None = None,
    negative_slope: float = 0.2,
) -> Tensor:
    """The score of every edge as in GATv2: ``att · leaky_relu(x_src[src] + x_dst[dst] + edge)``.

    Args:
        x_src: Rows of the sources, ``[num_src, heads, channels]``.
        x_dst: Rows of the destinations, ``[num_dst, heads, channels]``.
        att: ``[heads, channels]`` or ``[1, heads, channels]``.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.
        edge: Rows of the edges, ``[num_edges, heads, channels]``.
        negative_slope: Slope of ``leaky_relu`` below 0.

    Returns:
        ``[num_edges, heads]``.
    """
    att = att.squeeze(0) if att.dim() == 3 else att
    return operators.neighbor_score(x_src, x_dst, att, src, bounds, edge, negative_slope)


def neighbor_max(x: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The largest numbers, channel by channel, among every destination's sources' rows.

    Sources that have the same number share its gradient, of which a result of 0 keeps one share
    back: so does PyG's own.

    Args:
        x: Rows of the sources, ``[num_src, channels]`` or ``[num_src, heads, channels]``.
        src: ``[num_edges]``, ``int64``.
        bounds: ``[num_dst + 1]``, ``int64``, ascending.

    Returns:
        ``[num_dst, ...]``; 0 where there are no in-edges.
    """
    return operators.neighbor_max(x, src, bounds, False)


def neighbor_min(x: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The smallest numbers; the rest is as in :func:`neighbor_max`."""
    return operators.neighbor_max(x, src, bounds, True)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Like :func:`torch.nn.functional.dropout`, which makes random numbers on one core alone.

    Which numbers are left out depends on one draw from torch's random state (so
    ``torch.manual_seed`` repeats it) and on their place; another set than torch's own. On other
    devices than the CPU, and in place, it is torch's own.

    Args:
        x: Numbers with a fraction, of any shape.
        p: With which probability each becomes 0; the others are divided by ``1 - p``.
        training: ``False`` returns ``x``.
        inplace: Whether ``x`` itself is changed.

    Returns:
        Numbers of the shape and type of ``x``.

    Raises:
        ValueError: ``p`` is no probability.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> kept = gz.nn.ops.dropout(torch.ones(10_000), p=0.2)
        >>> kept.unique().tolist()
        [0.0, 1.25]
    """
    if not training or inplace or x.device.type != "cpu" or not x.is_floating_point():
        return F.dropout(x, p, training, inplace)
    return operators.dropout(x, p, int(torch.randint(2**63 - 1, ())))
