"""A report as text and as a page of HTML, from the same lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from pyg_graphzero.reporting.components import ComponentReport
from pyg_graphzero.reporting.edges import EdgeReport
from pyg_graphzero.reporting.findings import Finding, findings_of, percent
from pyg_graphzero.reporting.nodes import NodeReport
from pyg_graphzero.util.html import Shown


@dataclass
class Report(Shown):
    """The result of :func:`pyg_graphzero.report`; ``str()`` of it is what the command line prints.

    Attributes:
        path: The store.
        nodes: By node type: isolated nodes, splits, labels, features.
        edges: By edge type: duplicates, loops, degrees, homophily.
        components: Nodes that edges join, and those of them that seeds reach.
    """

    path: Path
    nodes: list[NodeReport] = field(default_factory=list)
    edges: list[EdgeReport] = field(default_factory=list)
    components: ComponentReport = field(default_factory=ComponentReport)

    @property
    def findings(self) -> list[Finding]:
        """Findings that may hurt training, errors first."""
        return findings_of(self.nodes, self.edges, self.components)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        findings = [asdict(each) for each in self.findings]
        return asdict(self) | {"path": str(self.path), "findings": findings}

    def __str__(self) -> str:
        counts = Counter(each.level for each in self.findings)
        texts = (f"{count} {level}{'s' * (count > 1)}" for level, count in counts.items())
        lines = [f"{self.path}: {', '.join(texts) or 'nothing found'}"]
        for each in self.findings:
            lines += [f"  {each.level}: {each.where}: {each.found}", f"    {each.why}"]
        for title, section in _sections(self):
            lines += [title, *(f"  {line}" for line in section)]
        return "\n".join(lines)

    def html(self) -> str:
        """A page that needs no other file."""
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(self.path.name)}: graphzero report</title></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )


def _sections(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Titles, each with its lines."""
    for nodes in report.nodes:
        yield nodes.name or "nodes", list(_node_lines(nodes))
    for edges in report.edges:
        yield "edges" if edges.name is None else " → ".join(edges.name), list(_edge_lines(edges))
    found, whole = report.components, report.components.num_nodes
    lines = [f"number: {found.number:,}, the largest {percent(found.largest, whole)} of the nodes"]
    if found.seeds is not None:
        reached = f"{found.with_seeds:,}, {percent(found.reached, whole)} of the nodes"
        lines.append(f"with seeds of {found.seeds}: {reached}")
    yield "components", lines


def _node_lines(nodes: NodeReport) -> Iterator[str]:
    splits, labels, num = nodes.splits, nodes.labels, nodes.num_nodes
    yield f"number: {num:,}, {nodes.isolated:,} without edges"
    for role, size in splits.sizes.items():
        if size:
            yield f"{role}: {size:,} ({percent(size, num)})"
    if labels is not None:
        kind = f", {len(labels.classes)} classes" * bool(labels.classes)
        yield f"labels {labels.attr}: {percent(labels.labelled, num)} of the nodes{kind}"
        order = sorted(range(len(labels.classes)), key=lambda each: -labels.classes[each])
        for each in dict.fromkeys([*order[:4], *order[-1:]]):
            train = f", {labels.in_train[each]:,} to train" * any(labels.in_train)
            yield f"  class {each}: {labels.classes[each]:,} nodes{train}"
    for found in nodes.features:
        counts = (
            ("nodes that miss a value", found.nan_rows),
            ("infinite values", found.infinite),
            ("nodes of zeros", found.zero_rows),
            ("constant columns", len(found.constant)),
        )
        faults = "".join(f"; {name} {count:,}" for name, count in counts if count)
        yield f"{found.attr}: {found.kind}{faults}"
        yield f"  deviation: {found.typical:.2g}; column {found.widest_column}: {found.widest:.2g}"


def _edge_lines(edges: EdgeReport) -> Iterator[str]:
    num = edges.num_edges
    yield f"number: {num:,}"
    yield f"duplicates: {edges.duplicates:,} ({percent(edges.duplicates, num)})"
    yield f"self-loops: {edges.self_loops:,} ({percent(edges.self_loops, num)})"
    if edges.homophily is not None:
        same, chance = (percent(n, edges.labelled) for n in (edges.same_label, edges.by_chance))
        yield f"homophily: {edges.homophily:.2f}; {same} join equal labels, {chance} by chance"
    for name, degree in (("in-degree", edges.in_degree), ("out-degree", edges.out_degree)):
        yield f"{name}: mean {degree.mean:.3g}, 99% {degree.p99:,}, largest {degree.largest:,}"
        yield f"  1% of the nodes: {percent(degree.top_share)} of the edges"
        yield f"  hubs: {', '.join(f'{node} ({count:,})' for node, count in degree.hubs)}"
