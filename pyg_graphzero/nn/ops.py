"""Operations over the edges of a sampled batch, without an array of messages.

Edges are grouped by destination: edges ``bounds[d]`` up to, not including, ``bounds[d + 1]`` lead
to destination ``d``, and ``src[e]`` is the row of the node that edge ``e`` comes from. Edges before
``bounds[0]`` and from ``bounds[-1]`` on have no destination: no sum counts them, and in a result
with an entry for each edge theirs is 0.

- Numbers may be float32, float64, bfloat16 or float16. Sums are taken in float32 (float64 of
  float64) and rounded once, to the type of the rows that went in; weights may have another type.
  ``torch.autocast`` changes nothing here, just as it leaves PyG's own messages alone: rows that
  a linear layer rounded come in rounded.
- On the CPU the engine computes the operations, and results have the same bits for any number of
  threads. On other devices torch's own functions do, with an array of messages while they run.
- The operations work under ``torch.compile`` and ``torch.utils.checkpoint``. Derivatives by
  ``torch.func`` raise :class:`RuntimeError`. Sums, means and products can be differentiated any
  number of times; the others raise the second time.
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
    """Sums, or averages, the rows of the sources of each destination's in-edges.

    Args:
        x: Rows of the sources, ``[num_src, channels]`` or ``[num_src, heads, channels]``.
        src: Row of each edge's source, ``[num_edges]``, ``int64``.
        bounds: First edge of each destination, ascending, and the end; ``int64 [num_dst + 1]``.
        weight: Factor of each edge's row, ``[num_edges]`` or ``[num_edges, heads]``.
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
    return operators.neighbor_sum(x, src, bounds, weight, mean, None)


def neighbor_dot(q: Tensor, k: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The inner product, for each edge, of its destination's row and its source's row.

    Args:
        q: Rows of the destinations, ``[num_dst, channels]`` or ``[num_dst, heads, channels]``.
        k: Rows of the sources, of the same shape and type.
        src: Row of each edge's source, ``[num_edges]``, ``int64``.
        bounds: First edge of each destination, ascending, and the end; ``int64 [num_dst + 1]``.

    Returns:
        ``[num_edges]`` or ``[num_edges, heads]``.
    """
    return operators.edge_dot(q, k, src, bounds, False)


def neighbor_softmax(scores: Tensor, bounds: Tensor) -> Tensor:
    """Softmax over every destination's in-edges, as :func:`torch_geometric.utils.softmax`.

    Args:
        scores: Score of each edge, ``[num_edges]`` or ``[num_edges, heads]``.
        bounds: First edge of each destination, ascending, and the end; ``int64 [num_dst + 1]``.

    Returns:
        Share of each edge, of the shape and type of ``scores``.
    """
    return operators.neighbor_softmax(scores, bounds, None)


def neighbor_score(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    src: Tensor,
    bounds: Tensor,
    negative_slope: float = 0.2,
) -> Tensor:
    """The score of every edge as in GATv2: ``att · leaky_relu(x_src[src] + x_dst[dst])``.

    Args:
        x_src: Rows of the sources, ``[num_src, heads, channels]``.
        x_dst: Rows of the destinations, ``[num_dst, heads, channels]``.
        att: Attention vector of each head, ``[heads, channels]`` or ``[1, heads, channels]``.
        src: Row of each edge's source, ``[num_edges]``, ``int64``.
        bounds: First edge of each destination, ascending, and the end; ``int64 [num_dst + 1]``.
        negative_slope: Slope of ``leaky_relu`` below 0.

    Returns:
        ``[num_edges, heads]``.
    """
    att = att.squeeze(0) if att.dim() == 3 else att
    return operators.neighbor_score(x_src, x_dst, att, src, bounds, negative_slope)


def neighbor_max(x: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The largest number, channel by channel, among the rows of each destination's sources.

    Sources that have the largest number share its gradient equally. Where that number is 0, one
    more share is left out, just as in PyG's own.

    Args:
        x: Rows of the sources, ``[num_src, channels]`` or ``[num_src, heads, channels]``.
        src: Row of each edge's source, ``[num_edges]``, ``int64``.
        bounds: First edge of each destination, ascending, and the end; ``int64 [num_dst + 1]``.

    Returns:
        ``[num_dst, ...]``; 0 where there are no in-edges.
    """
    return operators.neighbor_max(x, src, bounds, False)


def neighbor_min(x: Tensor, src: Tensor, bounds: Tensor) -> Tensor:
    """The smallest number, channel by channel; all else is the same as in :func:`neighbor_max`."""
    return operators.neighbor_max(x, src, bounds, True)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout like :func:`torch.nn.functional.dropout`, which draws on one core alone.

    One draw from torch's random state (so ``torch.manual_seed`` repeats it) and a number's place
    decide whether the number is left out; torch's own leaves out another set. On other devices than
    the CPU, and in place, this calls torch's own.

    Args:
        input: Numbers with a fraction, of any shape.
        p: Probability that a number becomes 0; the others are divided by ``1 - p``.
        training: ``False`` returns ``input``.
        inplace: Whether ``input`` itself is changed.

    Returns:
        Numbers of the shape and type of ``input``.

    Raises:
        ValueError: ``p`` is no probability.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> kept = gz.nn.ops.dropout(torch.ones(10_000), p=0.2)
        >>> kept.unique().tolist()
        [0.0, 1.25]
    """
    is_usual = input.device.type == "cpu" and input.is_floating_point() and p != 0
    if not training or inplace or not is_usual:
        return F.dropout(input, p, training, inplace)
    return operators.dropout(input, p, int(torch.randint(2**63 - 1, ())))
