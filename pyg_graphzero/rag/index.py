"""An index over rows, by usearch or faiss: files beside the store that are made once.

Rows are indexed in parts, as large as the store's budget leaves room for while one is made. Files
are mapped when they are searched. An index gives candidates; their similarities are computed from
the store's rows.
"""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import xxhash
from torch import Tensor
from torch.nn.functional import normalize

from pyg_graphzero import _core
from pyg_graphzero.rag.rows import Embeddings, Found
from pyg_graphzero.util.locks import make_scratch, remove_abandoned
from pyg_graphzero.util.progress import Progress

_FORMAT = 1  # of these files: another number, and they are made anew
_ENDING = ".index"
# Rows of a part at least; a budget that leaves less room is exceeded by them.
_LEAST_PART = 1 << 14
# Fewer rows than this are scanned by default, which takes milliseconds.
_SCANNED = 100_000
# Candidates of a part for each neighbour that is wanted, and at least.
_MORE, _LEAST_CANDIDATES = 4, 64


class Usearch:
    """HNSW graphs (Malkov & Yashunin 2018), one for each part.

    Vectors have length 1; they are kept as float16.

    Attributes:
        extra_bytes: Bytes of a row in memory, beside its float16 numbers.
    """

    extra_bytes = 400

    def build(self, rows: Embeddings, first: int, last: int, path: Path, bar: Any) -> None:
        """Indexes rows ``first … last - 1`` into a file."""
        from usearch.index import Index

        index = Index(ndim=rows.width, metric="ip", dtype="f16")
        for begin, slab in rows.slabs(first, last):
            index.add(np.arange(begin, begin + len(slab), dtype=np.uint64), slab.numpy())
            bar.update(len(slab))
        index.save(str(path))

    def open(self, path: Path) -> Any:
        """The index in a file, which is mapped."""
        from usearch.index import Index

        return Index.restore(str(path), view=True)

    def search(self, index: Any, query: np.ndarray, count: int) -> np.ndarray:
        """Rows (``int64 [n]``) near a query ``float32 [width]``, at most ``count``."""
        return np.asarray(index.search(query, count).keys).astype(np.int64)


class Faiss:
    """Lists around centroids, of which a third is read for each query; see :class:`Usearch`."""

    extra_bytes = 100

    def build(self, rows: Embeddings, first: int, last: int, path: Path, bar: Any) -> None:
        """See :meth:`Usearch.build`."""
        import faiss

        count = last - first
        # 39 rows a list are the fewest that faiss trains by without a warning.
        lists = max(1, min(math.isqrt(count), count // 39))
        index = faiss.index_factory(rows.width, f"IVF{lists},SQfp16", faiss.METRIC_INNER_PRODUCT)
        sample = torch.arange(first, last, max(1, count // (39 * lists)))
        index.train(rows.at(sample).numpy())
        for begin, slab in rows.slabs(first, last):
            index.add_with_ids(slab.numpy(), np.arange(begin, begin + len(slab)))
            bar.update(len(slab))
        faiss.write_index(index, str(path))

    def open(self, path: Path) -> Any:
        """See :meth:`Usearch.open`."""
        import faiss

        index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        index.nprobe = -(-index.nlist // 3)
        return index

    def search(self, index: Any, query: np.ndarray, count: int) -> np.ndarray:
        """See :meth:`Usearch.search`."""
        found: np.ndarray = index.search(query[None], count)[1][0]
        return found[found >= 0]


Library: TypeAlias = Usearch | Faiss
LIBRARIES: dict[str, type[Library]] = {"usearch": Usearch, "faiss": Faiss}


def choose(index: str, num_rows: int) -> Library | None:
    """The library that ``index`` means for that many rows; None: rows are scanned.

    Raises:
        ValueError: ``index`` is none of its choices.
        ModuleNotFoundError: The library is not installed.
    """
    if index not in ("auto", "scan", *LIBRARIES):
        expected = "'auto', 'scan', 'usearch' or 'faiss'"
        raise ValueError(f"index: found {index!r}, expected {expected}")
    there = [name for name in LIBRARIES if find_spec(name) is not None]
    if index == "auto":
        index = "scan" if num_rows < _SCANNED or not there else there[0]
    if index == "scan":
        return None
    if index not in there:
        raise ModuleNotFoundError(
            f"index={index!r}: found no package {index}, expected it installed: "
            "pip install pyg_graphzero[rag]; or index='scan'",
            name=index,
        )
    return LIBRARIES[index]()


class RowIndex:
    """The index of a column, made where there is none.

    Args:
        rows: Its rows.
        library: The library that makes and searches it.
        folder: The directory for indexes; made where there is none.

    Attributes:
        width: Numbers of a row.

    Raises:
        OSError: The files cannot be written.
    """

    def __init__(self, rows: Embeddings, library: Library, folder: Path) -> None:
        self._rows, self._library, self.width = rows, library, rows.width
        name = f"{_FORMAT} {type(library).__name__} {rows.file} {rows.record!r}"
        path = folder / xxhash.xxh3_128_hexdigest(name.encode())
        if not path.exists():
            self._make(path)
        self._parts = [library.open(part) for part in sorted(path.glob(f"*{_ENDING}"))]

    def nearest(self, queries: Tensor, k: int) -> list[Found]:
        """About the nearest rows, their similarities exact; see :meth:`Embeddings.nearest`."""
        return [self._nearest(query, k) for query in queries]

    def _nearest(self, query: Tensor, k: int) -> Found:
        count = max(_LEAST_CANDIDATES, _MORE * k)
        unit = normalize(query, dim=0).numpy()
        found = [np.empty(0, np.int64)]
        found += [self._library.search(part, unit, count) for part in self._parts]
        return self._rows.nearest_of(query, torch.from_numpy(np.concatenate(found)), k)

    def _make(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path, "partial")
        rows, scratch, lock = self._rows, *make_scratch(path, "partial")
        room = rows.room // 2 // (2 * rows.width + self._library.extra_bytes)
        step = max(_LEAST_PART, room)
        try:
            with Progress().step("indexing", rows.num_rows, "rows") as bar:
                for first in range(0, rows.num_rows, step):
                    part = scratch / f"{first:015}{_ENDING}"
                    self._library.build(rows, first, min(first + step, rows.num_rows), part, bar)
            with suppress(FileExistsError):  # another process was faster
                _core.publish_directory(str(scratch), str(path), False)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            del lock
