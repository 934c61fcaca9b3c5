"""Convolutions over the rows and edges that a layer needs, and how they are computed there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import HGTConv, MessagePassing

from pyg_graphzero.nn import kinds
from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.hgt import are_products, hgt
from pyg_graphzero.nn.layers import LAYERS, Layer, Work, messages, propagated
from pyg_graphzero.nn.program import DivergedError, Path, Program, Recorder, Runner, Step
from pyg_graphzero.nn.rules import Options, Space, Use, Value
from pyg_graphzero.nn.small import map_leaves, plain
from pyg_graphzero.sampling.hops import ALL, known_hops
from pyg_graphzero.sampling.inner_rows import InnerRows


@dataclass(frozen=True)
class Plan:
    """How a convolution is computed.

    Attributes:
        what: The way it is computed, in words.
        is_trimmed: Whether it runs over the rows and edges that are needed; else over all.
        layer: Computes it over these rows and edges.
        reduction: ``"sum"`` or ``"mean"``, where nothing else is made of the rows of its sources.
        normalises: Whether it is given weights by degrees of the whole graph.
        edge_type: Type of its edges; None in a homogeneous graph.
    """

    what: str
    is_trimmed: bool
    layer: Layer = messages
    reduction: str | None = None
    normalises: bool = False
    edge_type: Any = None


@cache
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


def _arguments(conv: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(type(conv).forward).bind(conv, *args, **kwargs).arguments
    own = dict(bound)
    own.pop(next(iter(own)))  # self
    own.update(own.pop("kwargs", {}))
    return own


def plan_of(conv: MessagePassing, given: dict[str, Any], is_square: bool, options: Options) -> Plan:
    """How a convolution may be computed.

    Args:
        conv: The convolution.
        given: Its arguments.
        is_square: Whether sources and destinations are nodes of one type.
        options: Facts that it may rely on.
    """
    layer = LAYERS.get(type(conv), messages)
    why = "messages of its own" if layer is messages else layer.why_not(conv, given)
    knows_degrees = options.has_degrees or (why is None and layer.reach == ALL)
    reason = _why_whole(conv, given, is_square, options, knows_degrees)
    if reason is not None:
        return Plan(f"whole batch: {reason}", False)
    if why is not None:
        return Plan(f"{messages.what} ({why})", True)
    return Plan(layer.what, True, layer, _reduction(layer, conv, given))


def _reduction(layer: Layer, conv: Any, given: dict[str, Any]) -> str | None:
    if not layer.only_sums(conv) or given.get("edge_weight") is not None:
        return None
    return {"mean": "mean", "add": "sum", "sum": "sum"}.get(conv.aggr)


def why_not_summed(
    program: Program, summed: list[tuple[Value | None, str]], depth: int
) -> str | None:
    """The reason why a forward pass cannot use rows that the loader added up; None if it can.

    Args:
        program: The steps of the forward pass.
        summed: Arguments whose rows the loader added up, each with its reduction.
        depth: Number of hops of a batch.
    """
    reductions = {id(value): reduction for value, reduction in summed}
    for step in program.steps:
        plan = step.about if isinstance(step.about, Plan) else None
        name = program.name(step)
        for number, (path, value) in enumerate(step.inputs):
            reduction = reductions.get(id(value))
            if reduction is None:
                continue
            own = plan.reduction if plan is not None and path == ("x", 0) else None
            if plan is not None and own == reduction and step.need < depth:
                step.about = replace(plan, what=f"{propagated.what}, added up by the loader")
            elif step.wanted(number) < depth:
                continue
            elif own is None:
                return f"{name} looks at rows of the last hop" + (f" ({plan.what})" if plan else "")
            elif own != reduction:
                return f"{name} takes the {own} of its neighbours, first_aggregation={own!r}"
            else:
                return f"{name} makes rows of the last hop: batches need a hop for each layer"
    return None


def _why_whole(
    conv: MessagePassing, given: dict[str, Any], is_square: bool, options: Options,
    knows_degrees: bool,
) -> str | None:  # fmt: skip
    name = type(conv).__name__
    if given.get("size") is not None:
        return "size= is given"
    if conv.flow != "source_to_target":
        return f"flow={conv.flow!r}"
    if given.get("return_attention_weights") is not None:
        return "attention weights are asked for"
    is_known = type(conv).__module__.startswith("torch_geometric.") or isinstance(
        conv, options.local
    )
    if not is_known:
        return f"{name} is not PyG's; say that it looks at in-edges alone: local=({name},)"
    if isinstance(conv, kinds.FAR):
        return "it may look further than one hop, or weights edges by degrees of neighbours"
    if getattr(conv, "cached", False):
        return "cached=True"
    for module in conv.modules():
        if kinds.looks_at_all_nodes(module):
            return f"{type(module).__name__} looks at all nodes"
        if (
            isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
            and module.training
            and not options.may_cut_norms
        ):
            return (
                f"{type(module).__name__} sees fewer rows when trimmed; norms='trimmed' allows it"
            )
    normalises = kinds.normalises(conv)
    if normalises and not knows_degrees:
        return "it weights edges by degrees of neighbours"
    if getattr(conv, "add_self_loops", False) and not is_square and not normalises:
        return "self-loops between two types of nodes"
    return None


def takes_types(given: dict[str, Any]) -> bool:
    """Whether a convolution is given rows and edges by type."""
    return given.get("edge_index") is None and isinstance(given.get("edge_index_dict"), dict)


def _apart(given: dict[str, Any]) -> tuple[list[tuple[Path, Any, Space, int]], dict[Any, Any]]:
    """Rows of nodes among a convolution's arguments, and its edges by type.

    Rows come with their place, their nodes, and the hops that it looks at them further than at its
    results.
    """
    if takes_types(given):
        rows_of = given["x_dict"].items()
        nodes = [(("x_dict", name), rows, Space(False, name), 1) for name, rows in rows_of]
        return nodes, given["edge_index_dict"]
    x, edge_index = given.get("x"), given.get("edge_index")
    pair = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    edge_type = getattr(edge_index, "edge_type", None)
    ends = (None, None) if edge_type is None else edge_type[::2]
    return [
        (("x", place), pair[place], Space(False, ends[place]), 1 - place) for place in (0, 1)
    ], {edge_type: edge_index}


def record(recorder: Recorder, conv: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Runs a convolution as it is, and writes down the rows that it needs."""
    given = _arguments(conv, args, kwargs)
    before = [dict(vars(module)) for module in conv.modules()]
    out = call(*plain(args), **plain(kwargs))
    nodes, edges = _apart(given)
    values = [recorder.value_of(rows) for _, rows, *_ in nodes]
    fits = all(
        value is not None and value.dim == 0 and value.space == space
        for value, (_, _, space, _) in zip(values, nodes, strict=True)
    ) and all(
        known_hops(edge_index) is not None and edge_index.edge_type == name
        for name, edge_index in edges.items()
    )
    results = out if isinstance(out, dict) else {nodes[-1][2].name: out}
    outputs = [
        (rows, space)
        for space, rows in ((Space(False, name), rows) for name, rows in results.items())
        if isinstance(rows, Tensor) and rows.dim() and rows.size(0) == recorder.num_rows.get(space)
    ]
    reach = {path: hops for path, *_, hops in nodes}
    inputs = [(path, value) for path, value in zip(reach, values, strict=True) if value is not None]
    named = map_leaves(given, lambda tensor, _: recorder.value_of(tensor) or tensor)
    if takes_types(given):
        plan = _typed_plan(conv, fits)
    else:
        (_, _, src, _), (_, _, dst, _) = nodes
        plan = Plan("whole batch: rows of its input are not known to be those of nodes", False)
        if fits and outputs:
            plan = plan_of(conv, given, src == dst, recorder.options)
            normalises = recorder.options.has_degrees and kinds.normalises(conv)
            plan = replace(plan, edge_type=next(iter(edges)), normalises=normalises)
        inputs += [
            ((name, None), value)
            for name, value in named.items()
            if name not in ("x", "edge_index") and isinstance(value, Value)
        ]
    if plan.is_trimmed and _keeps(conv, before):
        plan = Plan("whole batch: it keeps what it computes", False)
    use = Use.ROWS if plan.is_trimmed else Use.ALL
    hops = [reach.get(path, plan.layer.reach) for path, _ in inputs]
    step = Step(recorder.numbers.get(id(conv)), inputs, use, [], hops, plan, call=named)
    recorder.module(step, outputs)
    return out


def _typed_plan(conv: Any, fits: bool) -> Plan:
    is_known = type(conv) is HGTConv and conv.flow == "source_to_target"
    if fits and is_known and not kinds.is_changed(conv) and are_products(conv):
        return Plan("trimmed; attention in one pass", True)
    return Plan("whole batch: it takes dictionaries", False)


def _keeps(conv: MessagePassing, before: list[dict[str, Any]]) -> bool:
    """Whether a convolution, or a module of its own, has tensors of other shapes than before.

    Weights that are made anew (pruned ones) have the same.
    """
    return any(
        isinstance(value, Tensor) and getattr(had.get(name), "shape", None) != value.shape
        for module, had in zip(conv.modules(), before, strict=False)
        for name, value in vars(module).items()
    )


def run(runner: Runner, conv: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Computes those rows of a convolution that later steps need."""
    step = runner.next_module(conv)
    plan: Plan = step.about
    if not plan.is_trimmed:
        return call(*plain(args), **plain(kwargs))
    given = _arguments(conv, args, kwargs)
    nodes, edges = _apart(given)
    rows = {path: each for path, each, *_ in nodes}
    is_typed = takes_types(given)
    is_other = rows.keys() != {path for path, _ in step.inputs if path[1] is not None}
    is_other |= not is_typed and plan.edge_type not in edges
    if is_other or any(
        known_hops(each) != runner.hops or each.edge_type != name for name, each in edges.items()
    ):
        raise DivergedError
    for (path, value), reach in zip(step.inputs, step.reach, strict=True):
        if path in rows:
            runner.expect(rows[path], value)
        elif path[0] in given:
            runner.expect(given[path[0]], value)
            given[path[0]] = runner.cut(given[path[0]], value, step.need + reach)
    if is_typed:
        given["x_dict"] = {
            path[1]: runner.cut(rows[path], value, step.need + 1) for path, value in step.inputs
        }
    blocks = {name: Block(each, runner.hops, step.need) for name, each in edges.items()}
    out = computed(conv, plan, given, blocks)
    made = [out[value.space.name] for value in step.outputs] if is_typed else [out]
    runner.made(made, step.outputs)
    return out


def computed(conv: Any, plan: Plan, given: dict[str, Any], blocks: dict[Any, Block]) -> Any:
    """Rows of the destinations of blocks; by node type, where rows were given so.

    Args:
        conv: The convolution.
        plan: The way in which it is computed.
        given: Its arguments; rows that are summed may be ``InnerRows``, and those of a type that
            it does not look at None.
        blocks: Block of each edge type.
    """
    if takes_types(given):
        x_dict = given["x_dict"].items()
        return hgt(conv, {name: rows for name, rows in x_dict if rows is not None}, blocks)
    given = dict(given)
    del given["edge_index"]
    x, block = given.pop("x"), blocks[plan.edge_type]
    is_pair = isinstance(x, tuple | list)
    src, dst = x if is_pair else (x, x)
    is_summed = isinstance(src, InnerRows) and src.reduction == plan.reduction
    if isinstance(src, InnerRows) and not is_summed:
        src = src.rows
    if is_pair or is_summed or not plan.layer.only_sums(conv):
        src, dst = block.sources(src), block.destinations(dst)
    else:
        src, dst = block.both(src)
    return plan.layer.compute(Work(conv, src, dst, block, given, is_pair))
