"""Kinds of sources: a graph of some library, a dataset directory of some layout, files of edges."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch_geometric.data import Data, Dataset, HeteroData

from pyg_graphzero.conversion import folders, graphbolt, ogb
from pyg_graphzero.conversion.arrays import NAMES, SUFFIXES, Reference
from pyg_graphzero.conversion.dgl import dgl_spec, is_dgl
from pyg_graphzero.conversion.files import has_edges
from pyg_graphzero.conversion.paths import COMPRESSIONS, kind_suffix
from pyg_graphzero.conversion.pyg import load_pyg, pyg_spec
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spec import SPEC_SUFFIXES, GraphSpec, load_spec, parse_spec
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.schema import SCHEMA_FILE
from pyg_graphzero.util.reading import reading


class Layout(NamedTuple):
    """A way in which datasets are laid out in a directory.

    Attributes:
        name: Name of the layout.
        signs: Patterns of files that tell it from others: there is one at least.
        spec: The graph in such a directory.
    """

    name: str
    signs: Sequence[str]
    spec: Callable[[Path], GraphSpec]


LAYOUTS = (
    Layout("GraphBolt", (graphbolt.METADATA,), graphbolt.graphbolt_spec),
    Layout("OGB", ogb.SIGNS, ogb.ogb_spec),
    Layout("MAG240M", (folders.RELATIONS.format("___"),), folders.mag240m_spec),
    Layout("IGB", ("processed/paper__cites__paper/edge_index.npy",), folders.igb_spec),
)
_PROCESSED = ("data.pt", "geometric_data_processed.pt")
_BESIDE = ("pre_filter.pt", "pre_transform.pt")  # what PyG writes beside processed data


def graph_of(source: Any, inputs: Inputs) -> GraphSpec | None:
    """A source that has nodes and edges of its own; ``None`` if it is edges."""
    if isinstance(source, str | os.PathLike):
        return _graph_in(Path(source), inputs)
    if isinstance(source, Dataset):
        name = f"<{type(source).__name__}>"
        if len(source) != 1:
            raise InputError(name, "dataset", f"{len(source)} graphs", "one, which a store holds")
        spec = pyg_spec(source[0], inputs)
        if hasattr(source, "get_idx_split"):  # ogb's
            ogb.add_split(spec, source.get_idx_split(), name)
        return spec
    if isinstance(source, Data | HeteroData):
        return pyg_spec(source, inputs)
    if isinstance(source, Mapping) and not has_edges(source):
        return parse_spec(source)
    return dgl_spec(source) if is_dgl(source) else None


def _graph_in(path: Path, inputs: Inputs) -> GraphSpec | None:
    if path.suffix in SPEC_SUFFIXES:
        path = inputs.file(path)
        return replace(parse_spec(load_spec(path), path), base=path.parent)
    if path.is_dir():
        inputs.refuse_output(path)
        spec = _dataset_spec(path)
        processed = _processed_file(path) if spec is None else None
        if spec is None and processed is None:
            _check_files(path)
        if processed is None:
            return spec
        path = processed
    elif path.suffix not in (".pt", ".pth"):
        return None
    path = inputs.file(path)
    graph = load_pyg(path)
    return None if graph is None else pyg_spec(graph, inputs, path)


def _dataset_spec(path: Path) -> GraphSpec | None:
    """The graph in a directory of a known layout; ``None`` if it has none of these."""
    for layout in LAYOUTS:
        if any(any(path.glob(sign)) for sign in layout.signs):
            with reading(path, "directory", f"a whole {layout.name} directory"):
                return layout.spec(path)
    return None


def _processed_file(path: Path) -> Path | None:
    """The processed file in the root of a PyG dataset; ``None`` if it is no such root.

    Raises:
        InputError: There are several, and none has the usual name.
    """
    files = [file for file in sorted(path.glob("processed/*.pt")) if file.name not in _BESIDE]
    usual = [file for file in files if file.name in _PROCESSED]
    if len(usual or files) > 1:
        names = ", ".join(file.name for file in files)
        raise InputError(path / "processed", "files", names, "one", "Name the one to convert.")
    return next(iter(usual or files), None)


def _check_files(path: Path) -> None:
    """Refuse a directory that is neither a dataset nor full of files of one kind.

    Raises:
        InputError: Names what is there and what was looked for.
    """
    if (path / SCHEMA_FILE).exists():
        hint = "To convert it again, pass gz.convert what gz.open(path).data() returns."
        raise InputError(path, "directory", "a store", "a dataset or files of edges", hint)
    files = [file for file in path.rglob("*") if file.is_file()]
    kinds = {kind_suffix(file) for file in files if not file.name.startswith((".", "_"))}
    if len(kinds) == 1 and kinds <= {*SUFFIXES, *SPEC_SUFFIXES}:
        return
    looked_for = "; ".join(f"{each.name} ({', '.join(each.signs)})" for each in LAYOUTS)
    found = ", ".join(sorted(kind or "no suffix" for kind in kinds)) or "no files"
    raise InputError(
        path,
        "directory",
        f"files of several kinds ({found})" if len(kinds) > 1 else found,
        f"a dataset: {looked_for}; PyG (processed/*.pt); or files of one "
        f"kind: {', '.join(SUFFIXES)}, text also with {', '.join(COMPRESSIONS)}",
    )


def file_kind(files: Reference) -> str:
    """The name of a kind of files."""
    name, count = NAMES.get(files.suffix, files.suffix), len(files.files)
    return name if count == 1 else f"{name}, {count} files"
