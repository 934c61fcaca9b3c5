"""Explains an accelerated model: the rows that each layer computes, and how."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pyg_graphzero.nn.accelerate import Forward
from pyg_graphzero.nn.convs import Plan
from pyg_graphzero.nn.learn import Refused
from pyg_graphzero.nn.rules import Use
from pyg_graphzero.sampling.hops import ALL


@dataclass(frozen=True)
class LayerExplanation:
    """One convolution.

    Attributes:
        name: Name of the convolution in the model.
        kind: Name of its class.
        hops: Rows are made for nodes at most this many hops from the seeds; None if for all nodes.
        how: The way it is computed, or the reason why it runs over the whole batch.
    """

    name: str
    kind: str
    hops: int | None
    how: str


@dataclass(frozen=True)
class Explanation:
    """A model in the mode it last ran in.

    Attributes:
        layers: Its convolutions, in the order in which they run.
        whole: Steps that look at all rows at once, so that steps before them are not trimmed.
        as_it_is: The reason why the model runs as it did before; None if it is accelerated.
        cannot_run: Whether the loader of these batches has ``first_aggregation``, which the model
            cannot run on.
    """

    layers: list[LayerExplanation]
    whole: list[str]
    as_it_is: str | None = None
    cannot_run: bool = False

    def __str__(self) -> str:
        if self.as_it_is is not None:
            how = "does not run with first_aggregation" if self.cannot_run else "runs as it is"
            return f"{how}: {self.as_it_is}"
        names = [f"{layer.name} ({layer.kind})" for layer in self.layers]
        width = max(map(len, names), default=0)
        lines = [
            f"{name:{width}}  {'all nodes' if layer.hops is None else _hops(layer.hops):11}  "
            f"{layer.how}"
            for name, layer in zip(names, self.layers, strict=True)
        ]
        if not lines:
            lines.append("no convolution of PyG in it")
        return "\n".join(lines + [f"looks at all rows: {step}" for step in self.whole])


def _hops(count: int) -> str:
    return "seeds" if count == 0 else f"<= {count} hop{'s' * (count > 1)}"


def explain(model: torch.nn.Module) -> Explanation:
    """Says which layers of a model are trimmed, how they are computed, and why others are not.

    Args:
        model: A model from ``accelerate``, after its first batch.

    Raises:
        ValueError: The model was not accelerated, or has seen no batch of ``pyg_graphzero.loader``.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = gz.nn.accelerate(GraphSAGE(4, 16, num_layers=2, out_channels=3))
        >>> seeds = torch.tensor([2])
        >>> (batch,) = gz.loader.NeighborLoader(gz.open(example_store), [4, 4], seeds)
        >>> out = model(batch.x, batch.edge_index)
        >>> print(gz.nn.explain(model))
        convs.0 (SAGEConv)  <= 1 hop     trimmed; sums of rows
        convs.1 (SAGEConv)  seeds        trimmed; sums of rows
    """
    forward = model.__dict__.get("forward")
    if not isinstance(forward, Forward):
        raise ValueError("model: was not accelerated; pass it through nn.accelerate() first")
    if not forward.learned:
        raise ValueError(
            "model: has seen no batch of pyg_graphzero.loader yet whose edge_index knows its hops; "
            "run it on one first (those of subgraph_type='induced' or 'bidirectional' know none)"
        )
    program = list(forward.learned.values())[-1]
    if isinstance(program, Refused):
        return Explanation([], [], program.reason, program.reduction is not None)
    layers, whole = [], []
    for step in program.steps:
        name = program.name(step)
        if isinstance(step.about, Plan):
            hops = step.need if step.about.is_trimmed and step.need < ALL else None
            how = step.about.what
            if hops is None and step.about.is_trimmed:
                how = how.replace("trimmed; ", "whole batch: a later step looks at all rows; ")
            layers.append(LayerExplanation(name, program.names[step.func][1], hops, how))
            continue
        if step.use == Use.ALL:
            allowed = " (norms='trimmed' allows it to see fewer)" if name == "batch_norm" else ""
            whole.append(name + allowed)
        if any(value in program.kept for value in step.outputs):
            whole.append(f"{name}, whose result is kept")
    return Explanation(layers, list(dict.fromkeys(whole)))
