"""Findings that may hurt training: each with its threshold, and a sentence on why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from pyg_graphzero.conversion.plan import edge_label
from pyg_graphzero.reporting.components import ComponentReport
from pyg_graphzero.reporting.edges import EdgeReport
from pyg_graphzero.reporting.nodes import NodeReport

#: From the worst on.
LEVELS = ("error", "warning", "note")
#: By name: level, the most of the whole that is no finding, and its text.
RULES = {
    "dangling edges": ("error", 0, "{count:,} edges whose source is no node"),
    "duplicates": ("warning", 0.01, "{share} of the edges are duplicates"),
    "self-loops": ("note", 0.01, "{share} of the edges are self-loops"),
    "no messages": ("note", 0.1, "{share} of the nodes have no in-edge"),
    "hub": ("note", 100, "a hub has {count:,} in-edges, {ratio:,.0f} times the mean"),
    "homophily": ("note", 0.9, "ends have equal labels hardly more often than by chance"),
    "unreached": ("note", 0.1, "{share} of the nodes are in no component with a seed"),
    "isolated": ("warning", 0.01, "{share} of the nodes have no edge"),
    "dangling ids": ("error", 0, "{count:,} ids are no nodes"),
    "overlap": ("error", 0, "{count:,} are in both"),
    "late": ("warning", 0, "{share} of those to train on are later than one to evaluate"),
    "unlabelled": ("error", 0, "{count:,} training nodes have no label"),
    "imbalance": ("warning", 20, "the largest class is {ratio:,.0f} times the smallest"),
    "unseen": ("warning", 0, "{count:,} classes have no training node"),
    "missing": ("error", 0, "{share} of the nodes miss a value (NaN)"),
    "infinite": ("error", 0, "{count:,} values are infinite"),
    "zeros": ("note", 0.01, "{share} of the nodes have nothing but zeros"),
    "constant": ("note", 0, "{share} of the columns are constant"),
    "scale": ("warning", 10, "a column has a mean or deviation of {count:,.3g}"),
}
#: By name: the consequence, and the remedy.
WHY = {
    "dangling edges": "Conversion writes none: the file is damaged, and `graphzero verify` says "
    "where.",
    "duplicates": "A parallel edge counts twice in sums and is drawn twice as often; `graphzero "
    "convert --coalesce first` merges them, unless they mean something.",
    "self-loops": "Layers that add the node itself (SAGEConv, GINConv) count it twice; "
    "`--self-loops remove` leaves loops out.",
    "no messages": "Messages go from source to destination: these nodes get none of this type; "
    "`--undirected` adds reverse edges.",
    "hub": "A fan-out bounds the cost of a hub; with -1, all neighbours, one batch reads all of "
    "its edges, and sums over them are as much larger.",
    "homophily": "Means over neighbours blur such labels: compare with a model without edges, and "
    "prefer layers that keep the node apart (SAGEConv, skip connections).",
    "unreached": "No message leads from them to a seed: training never reads them, and predictions "
    "for them rest on parts of the graph that the model has not seen.",
    "isolated": "A node without edges has its own features alone. Ids that do not match between "
    "two tables look like this, too.",
    "dangling ids": "Loaders refuse them. Often they are ids of the input, not rows: "
    "store.lookup() turns the former into the latter.",
    "overlap": "A model is evaluated on labels it has seen: its accuracy is too high.",
    "late": "The split leaks in time: in use, a model knows nothing later. Split by time, and "
    "sample with `time_attr=`.",
    "unlabelled": "A loss over -1 or NaN fails, or is NaN, or learns a class that is none.",
    "imbalance": "Accuracy is that of the large classes: look at macro-F1, weight the loss, or "
    "draw seeds by torch_geometric.loader.ImbalancedSampler.",
    "unseen": "A model never predicts a class that it has not seen.",
    "missing": "One NaN in a batch makes its loss NaN, and all weights; `graphzero convert --fill` "
    "says what empty cells mean.",
    "infinite": "An infinite value makes the loss NaN, and all weights.",
    "zeros": "Zeros often stand for features that are missing; a column that says so tells a "
    "model.",
    "constant": "A constant tells nodes nothing, and takes memory and time in each batch.",
    "scale": "Weights begin for numbers around 1: large columns drown the others, and training "
    "diverges or crawls. Subtract the mean and divide by the deviation, or take logarithms.",
}

#: Name of a rule, where it applies, a count and the whole that it is compared with.
_Check: TypeAlias = tuple[str, str, float, float]


@dataclass
class Finding:
    """One finding.

    Attributes:
        name: Such as ``"duplicates"``.
        level: ``"error"``: training would be wrong; ``"warning"``: it may be worse; ``"note"``.
        where: The type or attribute.
        found: The number that was found.
        why: Its consequence, and the remedy.
    """

    name: str
    level: str
    where: str
    found: str
    why: str


def percent(part: float, whole: float = 1.0) -> str:
    """A share with two digits that count."""
    value = 100 * part / (whole or 1)
    return f"{value:.0f}%" if value >= 10 or value == 0 else f"{value:.2g}%"


def _of_edges(edges: EdgeReport) -> Iterator[_Check]:
    num, degree = edges.num_edges, edges.in_degree
    where = edge_label(edges.name) or "edges"
    yield "dangling edges", where, edges.dangling, num
    yield "duplicates", where, edges.duplicates, num
    yield "self-loops", where, edges.self_loops, num
    yield "no messages", where, sum(degree.histogram[:1]), sum(degree.histogram)
    yield "hub", where, degree.largest, max(1.0, degree.mean)
    if edges.homophily is not None:
        yield "homophily", where, 1 - edges.homophily, 1


def _of_nodes(nodes: NodeReport) -> Iterator[_Check]:
    num, splits, labels = nodes.num_nodes, nodes.splits, nodes.labels
    where = nodes.name or "nodes"
    yield "isolated", where, nodes.isolated, num
    for name, size in splits.dangling.items():
        yield "dangling ids", f"{where}, {name}", size, num
    for name, size in splits.overlaps.items():
        yield "overlap", f"{where}, {name}", size, 1
    yield "late", f"{where}, {splits.time}", splits.late, splits.sizes.get("train", 0)
    if labels is not None:
        place = f"{where}, {labels.attr}"
        yield "unlabelled", place, labels.train_unlabelled, num
        has_split = any(labels.in_train)
        there = [count for count in (labels.in_train if has_split else labels.classes) if count]
        yield "imbalance", place, max(there, default=0), min(there, default=1)
        unseen = sum(n == 0 < of for n, of in zip(labels.in_train, labels.classes, strict=True))
        yield "unseen", place, unseen if has_split else 0, len(labels.classes)
    for each in nodes.features:
        place = f"{where}, {each.attr}"
        yield "missing", place, each.nan_rows, num
        yield "infinite", place, each.infinite, num
        yield "zeros", place, each.zero_rows, num
        yield "constant", place, len(each.constant), each.width
        yield "scale", place, each.widest, 1


def findings_of(
    nodes: Iterable[NodeReport], edges: Iterable[EdgeReport], components: ComponentReport
) -> list[Finding]:
    """Counts that are beyond the threshold of their rule, errors first."""
    checks = [*map(_of_nodes, nodes), *map(_of_edges, edges)]
    reached, num_nodes = components.reached, components.num_nodes
    if components.seeds is not None:
        checks.append(iter([("unreached", "components", num_nodes - reached, num_nodes)]))
    ends = {None if each.name is None else each.name[2] for each in edges}
    silent = [each for each in nodes if each.name not in ends]
    checks.append(iter(("no messages", each.name or "nodes", 1, 1) for each in silent))
    found = []
    for name, where, count, whole in chain.from_iterable(checks):
        level, most, text = RULES[name]
        if count > most * whole:
            ratio = count / (whole or 1)
            said = text.format(count=count, share=percent(count, whole), ratio=ratio)
            found.append(Finding(name, level, where, said, WHY[name]))
    return sorted(found, key=lambda each: LEVELS.index(each.level))
