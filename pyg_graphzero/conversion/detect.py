"""What an input path is: a file of some kind, a dataset directory of some layout, many files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyg_graphzero.conversion import folders, graphbolt, ogb
from pyg_graphzero.conversion.arrays import SUFFIXES
from pyg_graphzero.conversion.paths import COMPRESSIONS, TEXT_SUFFIXES, kind_suffix
from pyg_graphzero.conversion.spec import SPEC_SUFFIXES, GraphSpec
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.schema import SCHEMA_FILE
from pyg_graphzero.util.reading import reading


@dataclass(frozen=True)
class Layout:
    """A way in which datasets are laid out in a directory.

    Attributes:
        name: What it is called.
        looked_for: What tells it from others.
        matches: Whether a directory has it.
        spec: The graph in such a directory.
    """

    name: str
    looked_for: str
    matches: Callable[[Path], bool]
    spec: Callable[[Path], GraphSpec]


LAYOUTS = (
    Layout("GraphBolt", graphbolt.LOOKED_FOR, graphbolt.is_graphbolt, graphbolt.graphbolt_spec),
    Layout("OGB", ogb.LOOKED_FOR, ogb.is_ogb, ogb.ogb_spec),
    Layout("MAG240M", folders.MAG240M, folders.is_mag240m, folders.mag240m_spec),
    Layout("IGB", folders.IGB, folders.is_igb, folders.igb_spec),
)
_PROCESSED = ("data.pt", "geometric_data_processed.pt")
_BESIDE = ("pre_filter.pt", "pre_transform.pt")  # what PyG writes beside processed data


def dataset_spec(path: Path) -> GraphSpec | None:
    """The graph in a directory of a known layout; ``None`` if it has none of these."""
    for layout in LAYOUTS:
        if layout.matches(path):
            with reading(path, "directory", f"a whole {layout.name} directory"):
                return layout.spec(path)
    return None


def processed_file(path: Path) -> Path | None:
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


def check_files(path: Path) -> None:
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
    looked_for = "; ".join(f"{each.name} ({each.looked_for})" for each in LAYOUTS)
    found = ", ".join(sorted(kind or "no suffix" for kind in kinds)) or "no files"
    raise InputError(
        path,
        "directory",
        f"files of several kinds ({found})" if len(kinds) > 1 else found,
        f"a dataset: {looked_for}; PyG (processed/*.pt); or files of one "
        f"kind: {', '.join(SUFFIXES)}, text also with {', '.join(COMPRESSIONS)}",
    )


def file_kind(path: Path, num_files: int, form: str | None = None) -> str:
    """What to call files of edges."""
    suffix = kind_suffix(path) if form is None else f".{form}".replace(".text", TEXT_SUFFIXES[0])
    name = "delimited text" if suffix in TEXT_SUFFIXES else _NAMES.get(suffix, suffix)
    return name if num_files == 1 else f"{name}, {num_files} files"


_NAMES = {
    ".npy": "NumPy array",
    ".npz": "NumPy archive",
    ".safetensors": "safetensors",
    ".feather": "Feather",
    ".mtx": "MatrixMarket",
    ".nt": "N-Triples",
    ".gl": "GraphZero graph",
    **dict.fromkeys((".pt", ".pth"), "torch file"),
    **dict.fromkeys((".bin", ".raw"), "raw binary"),
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
    **dict.fromkeys((".arrow", ".ipc"), "Arrow"),
}
