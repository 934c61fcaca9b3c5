"""Conversion: graphs in files or in memory to a store on disk.

One path for Python and the command line: a reader makes a plan (:mod:`.plan`) of the input, and
:mod:`.write` writes it. ``docs/convert.md`` is the guide.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.detect import file_kind, graph_of
from pyg_graphzero.conversion.files import has_edges, plan_files
from pyg_graphzero.conversion.options import Choices
from pyg_graphzero.conversion.paths import is_paths
from pyg_graphzero.conversion.plan import GraphPlan
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.sparse import is_sparse
from pyg_graphzero.conversion.spec import FLAT, flat_spec
from pyg_graphzero.conversion.summary import ConvertSummary, EdgeSummary, NodeSummary
from pyg_graphzero.conversion.tables import is_frame
from pyg_graphzero.conversion.write import write_plan
from pyg_graphzero.errors import InputError, InputWarning
from pyg_graphzero.store.csc import CscOptions
from pyg_graphzero.store.writer import check_target
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.workspace import Workspace

__all__ = ["ConvertSummary", "EdgeSummary", "NodeSummary", "convert"]


def convert(
    source: Any,
    out: str | os.PathLike[str],
    *,
    src: str | int | None = None,
    dst: str | int | None = None,
    edge_attrs: Mapping[str, Any] | Sequence[str] | None = None,
    nodes: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    node_attrs: Mapping[str, Any] | Sequence[str] | None = None,
    num_nodes: int | Mapping[str, int] | None = None,
    edge_type: tuple[str, str, str] | str | None = None,
    ids: str | None = None,
    id_type: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    comment: str | None = "#",
    edge_layout: str | None = None,
    format: str | None = None,
    undirected: bool = False,
    coalesce: str | None = None,
    self_loops: str = "keep",
    edge_ids: bool = True,
    time_attr: str | None = None,
    both_directions: bool = False,
    dtypes: Mapping[str, Any] | None = None,
    fill: Mapping[str, Any] | None = None,
    features: str | Mapping[str, str] | None = None,
    adopt: bool = False,
    take: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    memory: int | str | None = None,
    tmp: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> ConvertSummary:
    """Convert a graph to a store.

    ``source`` is one of

    * text with an edge in each row (``.csv``, ``.tsv``, ``.txt``, each also ``.gz`` or ``.zst``;
      ``"-"`` for standard input), or a Parquet, Arrow or Feather file,
    * triples of RDF (``.nt``),
    * a file of arrays (``edges.npy``, ``graph.npz``, ``graph.npz:row,col``, ``.pt``), or an array
      or tensor ``[2, E]`` or ``[E, 2]``, or a pair of them,
    * several such files: a directory, a pattern or a list,
    * the directory of a dataset: OGB, MAG240M, IGB, GraphBolt or PyG's,
    * a PyG ``Data`` or ``HeteroData``, a dataset of one, or a ``.pt`` file with one,
    * a graph of DGL, a sparse matrix of SciPy or torch,
    * a table of whatever hands out Arrow data: a frame of pandas or polars, a table, reader or
      dataset of Arrow, a relation of DuckDB, a cursor of ADBC,
    * a specification of node and edge types: a dict, or a ``.toml`` or ``.json`` file.

    An attribute's *source* is a column of the text file at hand (a name, ``"f0,f1"``, ``"f*"``, a
    0-based position, or a list of these: several columns make a matrix), or an array, or a path
    with an optional member: ``"feat.npy"``, ``"graph.npz:label"``, ``"split.csv:node"``.

    Args:
        source: The graph.
        out: Directory of the new store. Written beside it first and renamed when complete.
        src: Column of source ids; found by names and values, and refused where that is in doubt.
        dst: Column of destination ids, likewise.
        edge_attrs: Edge attribute → source, or a list of columns; one row per edge.
        nodes: Node table: one row per node, in the order of the store. A path, or a mapping with
            ``file``, ``id`` (its id column; the first by default) and layout options.
        node_attrs: Node attribute → source, or a list of columns; one row per node. A name with
            ``idx`` or ``index`` is a set of nodes by id, of any length.
        num_nodes: Number of nodes, where there are some beyond the largest id.
        edge_type: ``("user", "rates", "movie")``, where sources and destinations are two kinds of
            nodes: each has ids, and rows, of its own. ``nodes`` and ``num_nodes`` then are mappings
            from node types, and ``node_attrs`` are called ``"movie.x"``. With ``*`` for the
            relation, ``("entity", "*", "entity")``, each relation of triples is an edge type.
        ids: ``"dense"``: ids are rows. ``"map"``: they are numbered in ascending order (or as
            the node table has them) and kept. ``"auto"`` (the default): dense when they are
            integers and ``num_nodes`` or the rows of an attribute say so, or 0 and at least half
            of 0…max occur; else map.
        id_type: ``"int"``, ``"str"``, or ``"auto"`` (the default) by the first id of a column.
        delimiter: One character, or ``"tab"``, ``"space"`` …; detected when ``None``.
        header: Whether the first row holds column names; detected when ``None``.
        comment: Lines starting with this are not data; ``None`` if there are none.
        edge_layout: ``"2xE"`` or ``"Ex2"``; needed for a ``[2, 2]`` array only.
        format: The kind of a file of edges, whatever it is called: ``"text"``, ``"parquet"``,
            ``"arrow"`` or ``"nt"`` (N-Triples).
        undirected: Add the reverse of every edge, with its attributes. Between two node types
            the reverse edges are a type of their own, ``rev_…``.
        coalesce: Merge parallel edges, their attributes by ``"first"``, ``"sum"``, ``"mean"``,
            ``"min"`` or ``"max"``.
        self_loops: ``"keep"``, ``"remove"``, or ``"add"`` one where a node has none.
        edge_ids: ``False``: do not keep which edge of the input is which, 4 bytes an edge (8 beyond
            2³¹ edges). Batches then have no ``e_id``, and there can be no edge attributes.
        time_attr: Sort every neighbourhood by this attribute of the edges or, where they have
            none of that name, of their sources; then temporal sampling by it needs no sorting.
        both_directions: Write the edges sorted by source, too, for walks along them; an undirected
            graph needs it for none. See :meth:`Store.create_csr`.
        dtypes: Attribute → dtype, such as ``"float16"``. By default ``float64`` of ``x``, ``y`` and
            weights is stored as ``float32``.
        fill: Attribute → what stands for a missing value, such as -1 or NaN: an empty cell, a null,
            NaN, or a node that a table with an id column does not have. Without it they are errors.
        features: ``"float16"``, ``"bfloat16"`` or ``"int8"``: store the node attribute ``x`` in
            fewer bytes, to be decoded to ``float32`` whenever rows are loaded; or a mapping from
            node attributes (``"x"``, ``"paper.x"``) to one of these.
        adopt: Leave node attributes in the files that they lie in as rows; the store refers to
            these.
        take: Attributes to store (``"x"``, ``"paper.x"``); all that are given by default.
        skip: Attributes to leave out.
        memory: Budget of the whole process, in bytes or such as ``"4GB"``; half of what is free
            by default.
        tmp: Directory for temporary files; beside ``out`` by default.
        force: Replace the store at ``out``.
        progress: Show progress bars: ``True``, ``False``, or ``None`` if stderr is a terminal.

    Returns:
        A summary of the store.

    Raises:
        InputError: The input is not what it should be: names file, line or row, column, what is
            there and what was expected. It is a ``ValueError``.
        ValueError: An option is none of its choices, or does not go with this source; ``memory`` is
            too little, and the message says how much is enough.
        FileNotFoundError: An input file does not exist.
        FileExistsError: ``out`` exists and ``force`` is not given.
        StoreInUseError: The store at ``out`` is to be replaced, and open for writing somewhere.
        OSError: Reading or writing failed; no partial store is left.

    Example:
        >>> import numpy as np, pyg_graphzero as gz
        >>> summary = gz.convert(np.array([[0, 1, 2], [1, 2, 0]]), getfixture("tmp_path") / "ring")
        >>> summary.num_nodes, summary.num_edges
        (3, 3)
    """
    arguments = locals()
    flat = {name: arguments[name] for name in FLAT}
    started = time.perf_counter()
    target = Path(out)
    options = CscOptions(
        undirected=undirected, coalesce=coalesce, self_loops=self_loops, edge_ids=edge_ids
    )
    for name in ("both_directions", "adopt", "force"):
        if not isinstance(arguments[name], bool):
            raise ValueError(f"{name}={arguments[name]!r}: expected True or False")
    choices = Choices(take, skip, dtypes, fill, features, adopt)
    check_target(target, force)
    with Workspace(target, memory, tmp) as space:
        inputs = Inputs(Path(), target, choices, options, Progress(progress), space)
        plan = _plan(source, flat, inputs)
        choices.check(plan)
        plan.time_attr, plan.both_directions = time_attr, both_directions
        plan.expand_undirected()
        summary = write_plan(plan, target, inputs, force)
    for doubt in choices.doubts:
        warnings.warn(doubt, InputWarning, stacklevel=2)
    summary.seconds = time.perf_counter() - started
    return summary


def _plan(source: Any, flat: dict[str, Any], inputs: Inputs) -> GraphPlan:
    """Choose the reader by what ``source`` is."""
    if isinstance(source, str) and source == "-":
        source, flat["format"] = inputs.stdin(), flat["format"] or "text"
    found = graph_of(source, inputs) if flat["format"] is None else None
    if found is not None:
        _refuse_flat(flat, f"{found.name} ({found.what}) describes the graph itself")
        inputs.progress.say(f"{found.name}: {found.what}")
        if not isinstance(source, str | os.PathLike):
            return plan_files(found, inputs)
        with reading(found.name, "graph", "options and files that go together"):
            named = inputs.beside(found.base, found.name)
            return plan_files(found, named)
    if not is_paths(source) and not has_edges(source):
        is_several = isinstance(source, list | tuple) and bool(source)
        hint = "Batch.from_data_list(...) makes one graph of several." if is_several else ""
        if type(source).__module__.startswith("networkx"):
            hint = "torch_geometric.utils.from_networkx(graph) makes a Data of it."
        if isinstance(source, Iterator):
            hint = "pyarrow.RecordBatchReader.from_batches(schema, batches) makes a table of them."
        raise InputError(
            "source",
            "type",
            type(source).__name__ + (f" of {type(source[0]).__name__}" if is_several else ""),
            "a path, Data, HeteroData, dataset, array, table, sparse matrix, graph of DGL or dict",
            hint,
        )
    spec = flat_spec(source, flat)
    if is_paths(source):
        files = inputs.reference(source, flat["format"])
        spec.what = file_kind(files)
        inputs.progress.say(f"{files.path}: {spec.what}")
    else:
        kind = "table" if is_frame(source) else "sparse matrix in memory" * is_sparse(source)
        spec.what = f"{kind} ({type(source).__name__})" if kind else "arrays in memory"
        if flat["format"] is not None:
            raise ValueError(f"format={flat['format']!r}: found {spec.what}, expected a file")
    return plan_files(spec, inputs)


def _refuse_flat(flat: dict[str, Any], reason: str) -> None:
    given = [
        name
        for name, value in flat.items()
        if value is not None and not (name == "comment" and value == "#")
    ]
    if given:
        raise ValueError(f"{', '.join(given)}: not an option here, because {reason}")
