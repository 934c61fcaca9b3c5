"""A report as text and as a page of HTML, from the same lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from pyg_graphzero.reporting.components import ComponentReport
from pyg_graphzero.reporting.edges import Degrees, EdgeReport
from pyg_graphzero.reporting.findings import Finding, findings_of, percent
from pyg_graphzero.reporting.nodes import NodeReport
from pyg_graphzero.tune.diagnosis import Diagnosis
from pyg_graphzero.util.html import outline
from pyg_graphzero.util.sizes import format_bytes

_STYLE = """
.gz{font:15px/1.45 system-ui,sans-serif;max-width:46rem;margin:auto}
.gz h1{font-size:1.3rem;overflow-wrap:anywhere}.gz h2{font-size:1.1rem;margin:1.6em 0 .4em}
.gz table{border-collapse:collapse;width:100%}
.gz td{padding:.15em .6em .15em 0;vertical-align:top;overflow-wrap:anywhere}
.gz td:nth-child(2){width:62%}.gz tr+tr td{border-top:1px solid #8883}
.gz .finding{border-left:.3rem solid #888;padding:.1em .7em;margin:.7em 0}
.gz .error{border-color:#b3261e}.gz .warning{border-color:#b26a00}
.gz .finding p{margin:.2em 0}.gz figure{margin:.8em 0}.gz svg{width:100%;max-width:22rem}
.gz svg text{font:10px system-ui,sans-serif;fill:currentColor}.gz rect{fill:#4a8fb0}
"""


@dataclass
class Report:
    """The result of :func:`pyg_graphzero.report`; ``str()`` of it is what the command line prints.

    Attributes:
        path: The store.
        nodes: By node type: isolated nodes, splits, labels, features.
        edges: By edge type: duplicates, loops, degrees, homophily.
        components: Nodes that edges join, and those of them that seeds reach.
        batches: Batches after each hop of the fan-out, by :func:`pyg_graphzero.doctor`.
        notes: Limits of these figures.
    """

    path: Path
    nodes: list[NodeReport] = field(default_factory=list)
    edges: list[EdgeReport] = field(default_factory=list)
    components: ComponentReport = field(default_factory=ComponentReport)
    batches: list[Diagnosis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Findings that may hurt training, errors first."""
        return findings_of(self.nodes, self.edges, self.components)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        value = asdict(replace(self, batches=[])) | {"path": str(self.path)}
        value["findings"] = [asdict(each) for each in self.findings]
        value["batches"] = [each.to_dict() for each in self.batches]
        return value

    @property
    def _title(self) -> str:
        counts = Counter(each.level for each in self.findings)
        texts = (f"{count} {level}{'s' * (count > 1)}" for level, count in counts.items())
        return f"{self.path}: {', '.join(texts) or 'nothing found'}"

    def __str__(self) -> str:
        lines = [self._title]
        for each in self.findings:
            lines += [f"  {each.level}: {each.where}: {each.found}", f"    {each.why}"]
        for title, section, _ in _sections(self):
            lines += [title, *(f"  {line}" for line in section)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<h1>{escape(self._title)}</h1>"]
        for each in self.findings:
            head = f"<b>{each.level}</b> {escape(f'{each.where}: {each.found}')}"
            parts.append(f'<div class="finding {each.level}">{head}<p>{escape(each.why)}</p></div>')
        for title, section, plots in _sections(self):
            parts += [f"<h2>{escape(title)}</h2>", outline("\n".join(section)), *plots]
        return f'<style>{_STYLE}</style><div class="gz">{"".join(parts)}</div>'

    def html(self) -> str:
        """A page that needs no other file."""
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(self.path.name)}: graphzero report</title></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )


def _sections(report: Report) -> Iterator[tuple[str, list[str], list[str]]]:
    """Titles, each with its lines and its plots."""
    for nodes in report.nodes:
        yield nodes.name or "nodes", list(_node_lines(nodes)), []
    for edges in report.edges:
        title = "edges" if edges.name is None else " → ".join(edges.name)
        plots = [_plot(edges.in_degree, "in-edges"), _plot(edges.out_degree, "out-edges")]
        yield title, list(_edge_lines(edges)), plots
    found, whole = report.components, report.components.num_nodes
    lines = [f"number: {found.number:,}, the largest {percent(found.largest, whole)} of the nodes"]
    if found.seeds is not None:
        reached = f"{found.with_seeds:,}, {percent(found.reached, whole)} of the nodes"
        lines.append(f"with seeds of {found.seeds}: {reached}")
    yield "components", lines, []
    lines = []
    for each in report.batches:
        loaded, per = each.loaded, max(1, each.loaded.batches)
        size = f"{format_bytes(loaded.bytes // per)}; {each.verdict}"
        lines.append(f"fan-out {each.num_neighbors}: {loaded.nodes / per:,.0f} rows, {size}")
    for each in report.batches[-1:]:
        lines += str(each.memory_plan).splitlines()
    yield "batches and memory", [*lines, *(f"note: {note}" for note in report.notes)], []


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


def _plot(degree: Degrees, title: str) -> str:
    """Bars: nodes by number of edges, in powers of two."""
    counts = degree.histogram
    most, width = max(counts, default=1) or 1, 320 / max(1, len(counts))
    bars = []
    for at, count in enumerate(counts):
        tall, left = 90 * count / most, at * width + 1
        bars.append(
            f'<rect x="{left:.1f}" y="{90 - tall:.1f}" width="{width - 2:.1f}" '
            f'height="{tall:.1f}"/>'
            f'<text x="{left:.1f}" y="102">{(1 << at) // 2 if at < 8 or at % 3 == 0 else ""}</text>'
        )
    caption = f"Nodes by their number of {title}, from 0, 1, 2, 4, 8 … on; {most:,} at the highest"
    svg = f'<svg viewBox="0 0 320 106" role="img">{"".join(bars)}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"
