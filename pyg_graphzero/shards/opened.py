"""``gz.open_shards``: a store in shards, whose batches have rows that other ranks have."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.shards.exchange import Exchange, ExchangeStats, Key, Shelf, Wanted
from pyg_graphzero.shards.fetcher import Fetcher
from pyg_graphzero.shards.owners import Owners
from pyg_graphzero.shards.window import Asked, Window, sample
from pyg_graphzero.store.columns import EncodedRows, gather, in_memory, view_topology
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.leftovers import Draft
from pyg_graphzero.store.manifest import (
    EDGE_ID,
    PART_ATTR,
    SLOTS_ATTR,
    WHOLE,
    Manifest,
    part_name,
    starts_attr,
)
from pyg_graphzero.store.opened import OpenedFiles, Opening
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.disk import READER_BYTES
from pyg_graphzero.util.sizes import folder_bytes
from pyg_graphzero.util.system import private_rss

# Sources of edges, beside their attributes.
_SOURCE = "source"
# Bytes that are fetched at once of an attribute that is wanted whole.
_BYTES_AT_ONCE = 32 << 20


def open_shards(
    path: str | os.PathLike[str],
    group: Any = None,
    *,
    timeout: float = 300.0,
    memory: int | str | None = None,
    processes: int = 1,
    strict: bool = False,
    row_cache: int | str | bool = "auto",
) -> ShardedStore:
    """Opens a store in shards, of which every rank has one; all ranks call it.

    The store is used as one of ``gz.open``, and batches are the same bits as those of the store
    that was divided. Narrow attributes are whole on every rank; other rows are fetched from the
    ranks that have them, and so are neighbours if the topology is divided, too.

    Call ``close()`` on every rank, before the process group ends: it serves the other ranks until
    they close too. A rank that ends without it is an error for the others.

    Args:
        path: The directory with the shards; there must be ``whole``, and the part of this rank's
            number in the group.
        group: The ranks, one for each part; None: all. The exchange makes a group of its own.
        timeout: Seconds until a rank that does not answer counts as lost.
        memory: See ``gz.open``. The part that files which every rank has do not take is for batches
            with their rows, up to twelve, and for rows of nodes that were used before, which do not
            travel again. Where each rank has all edges, and no room is left, rows of twelve batches
            come on top. Own rows are mapped if the part fits in twice, else read from the disk.
        processes: See ``gz.open``.
        strict: See ``gz.open``.
        row_cache: See ``gz.open``.

    Raises:
        ValueError: On all ranks: a part is missing on one, or parts are of different stores or
            versions, or as many as there are not ranks.
    """
    if not dist.is_initialized():
        raise ValueError(
            "group: found no process group, expected torch.distributed.init_process_group() before"
        )
    ranks = _Ranks(dist.get_process_group_ranks(group or dist.group.WORLD), timeout)
    how = Opening(memory, processes, strict, row_cache)
    return _open(Path(os.path.realpath(check_path(path, "path"))), ranks, how)


@dataclass(frozen=True)
class _Ranks:
    """The ranks that have parts.

    Attributes:
        numbers: Their global numbers.
        timeout: Seconds until one that does not answer counts as lost.
    """

    numbers: list[int]
    timeout: float

    def group(self) -> Any:
        """A group that nothing else uses."""
        time = timedelta(seconds=self.timeout)
        return dist.new_group(self.numbers, time, backend="gloo", use_local_synchronization=True)

    def gather(self, value: Any, group: Any) -> list[Any]:
        """The values of all ranks."""
        everyone: list[Any] = [None] * len(self.numbers)
        dist.all_gather_object(everyone, value, group=group)
        return everyone


def _open(
    directory: Path,
    ranks: _Ranks,
    how: Opening,
    drafts: Sequence[Draft] = (),
    attrs: Mapping[str | None, Collection[str]] | None = None,
) -> ShardedStore:
    """Opens a store in shards, on all ranks at once.

    Args:
        directory: Where it lies.
        ranks: The ranks.
        how: How it is opened.
        drafts: Drafts in this rank's part, to be attributes here.
        attrs: Attributes in shards to show, by node type; None: all.
    """
    own, store, error = ranks.group(), None, None
    try:
        store = Shards(directory, dist.get_rank(own), len(ranks.numbers), drafts, attrs)
        found: Any = store.identity
    except Exception as caught:
        error, found = caught, f"{type(caught).__name__}: {caught}"
    _check_alike(ranks.gather(found, own), error)
    assert store is not None
    exchange = Exchange(store.shelves, own, str(directory))
    try:
        return ShardedStore(store, exchange, ranks, how)
    except BaseException:
        exchange.fail()
        raise


def _check_alike(everyone: list[Any], error: Exception | None) -> None:
    """Raises on every rank if one of them could not open its part, or another store's."""
    failed = [f"rank {rank}: {each}" for rank, each in enumerate(everyone) if isinstance(each, str)]
    if failed:
        raise ValueError(f"shards cannot be opened: {'; '.join(failed)}") from error
    for rank, each in enumerate(everyone):
        for member, value in everyone[0].items():
            if each[member] != value:
                raise ValueError(
                    f"shards: {member}: found {each[member]!r} on rank {rank}, expected "
                    f"{value!r}, as on rank 0"
                )


class Shards:
    """A rank's part, checked against the manifest, for what makes batches.

    Attributes:
        has_topology: Neighbours lie in shards, too, with the ids and attributes of edges.
        starts: Where the slots of each node begin, by edge type where that is not where its bounds
            say.
    """

    _fetcher: Fetcher
    _names: dict[str, Any]

    def __init__(
        self,
        directory: Path,
        rank: int,
        size: int,
        drafts: Sequence[Draft],
        attrs: Mapping[str | None, Collection[str]] | None,
    ) -> None:
        manifest = Manifest.load(directory)
        if manifest.parts != size:
            raise ValueError(
                f"{directory}: found {manifest.parts} parts, expected {size}: one for each rank"
            )
        self.directory, self.manifest = directory, manifest
        self.has_topology = manifest.topology == "own"
        self.is_shown_in_part = attrs is not None
        whole = OpenedFiles(directory / WHOLE)  # which is opened again once all ranks have theirs
        self.rank = rank
        part = OpenedFiles(directory / part_name(rank), Opening(drafts=tuple(drafts)))
        self.shelves: dict[Key, Shelf] = {}
        self.owners: dict[str | None, Owners] = {}
        self.starts: dict[EdgeType | None, Tensor] = {}
        for division in manifest.node_types:
            record, numbers = part.node_type(division.own), None
            if division.bounds is None:
                every = part.node_type(division.every)
                numbers = in_memory(part.view(every.attrs[PART_ATTR]))
            owners = self.owners[division.name] = Owners(division, manifest.parts, numbers)
            nodes = owners.nodes(rank)
            if len(nodes) != record.num_nodes:
                raise ValueError(
                    f"{part.path}: found {record.num_nodes} nodes of {division.every!r}, expected "
                    f"{len(nodes)} by the manifest"
                )
            files = {
                attr: file
                for attr, file in record.attrs.items()
                if attrs is None or attr in attrs.get(division.name, ())
            }
            self.shelves["node", division.name] = _shelf(part, owners, nodes, files)
        for edges in whole.schema.edge_types if self.has_topology else []:
            self._open_edges(part, edges.name, rank)

    def _open_edges(self, part: OpenedFiles, name: EdgeType | None, rank: int) -> None:
        """Opens the edges of a type that lead to this rank's nodes."""
        own = self.manifest.own_edges(name)
        record, every = part.edge_type(own), part.node_type(own[2].removeprefix("own:"))
        bounds = part.view(record.others[SLOTS_ATTR]["file"]).tolist()
        owners, slots = Owners.of_ranges(own, bounds), range(*bounds[rank : rank + 2])
        if len(slots) != record.num_edges:
            raise ValueError(
                f"{part.path}: found {record.num_edges} edges of {own}, expected {len(slots)}"
            )
        attrs = dict(record.attrs)
        ids = {attr: attrs.pop(attr) for attr in (EDGE_ID,) if attr in attrs}
        self.shelves["edge", name] = _shelf(part, owners, slots, attrs)
        self.shelves["edge_id", name] = _shelf(part, owners, slots, ids)
        topology = part.topology(own)
        sources = {_SOURCE: view_topology(topology)[1]}
        files = [_core.ColumnFile.of_indices(topology)]
        self.shelves["neighbour", name] = Shelf(owners, slots, sources, files)
        if (attr := starts_attr(own)) in every.attrs:
            self.starts[name] = part.view(every.attrs[attr])

    @property
    def identity(self) -> dict[str, Any]:
        """Whatever all ranks must have alike."""
        columns = {
            str(key): {
                attr: (str(rows.dtype), list(rows.shape[1:]), _numbers(shelf.decoders.get(attr)))
                for attr, rows in shelf.columns.items()
            }
            for key, shelf in self.shelves.items()
        }
        release = version("pyg_graphzero")
        return {"version": release, **asdict(self.manifest), "columns": columns}

    def serve(self, contents: StoreContents, fetcher: Fetcher) -> None:
        """Has a store's batches made of rows that ``fetcher`` gets.

        The engine calls edge types by the paths of their topologies.
        """
        names = [t.name for t in contents.schema.edge_types]
        self._names = {contents.topology(name).path: name for name in names}
        self._fetcher, contents.shards = fetcher, self

    def attrs(self, key: Key, whole: Collection[str]) -> list[str]:
        """All attributes of a type in order, of which ``whole`` are not in shards."""
        shelf = self.shelves.get(key)
        there = [*whole, *(shelf.columns if shelf is not None else ())]
        order = self.manifest.of(key[1]).attrs if key[0] == "node" else []
        return list(dict.fromkeys([*(attr for attr in order if attr in there), *there]))

    def slots(self, name: EdgeType | None, attr: str | None = None) -> Tensor:
        """An attribute of all edges by slot, in memory; None: their sources, ``[num_edges]``.

        Raises:
            RankLostError: A rank does not answer.
        """
        key, attr = ("neighbour", name) if attr is None else ("edge", name), attr or _SOURCE
        shelf = self.shelves[key]
        count, parts = shelf.owners.division.num_nodes, []
        step = max(1, _BYTES_AT_ONCE // shelf.row_bytes)
        for first in range(0, max(1, count), step):
            numbers = torch.arange(first, min(first + step, count))
            tables, at = self._fetcher.exchange.fetch({key: numbers}, {})[key]
            parts.append(gather(tables[attr], at))
        return torch.cat(parts)

    def in_slots(self, name: EdgeType | None, bounds: Tensor) -> Tensor:
        """``indptr`` of neighbourhoods in the order of their slots, from that of the nodes."""
        starts = self.starts.get(name)
        if starts is None:
            return bounds
        return torch.cat([in_memory(starts).sort().values, bounds[-1:]])

    def kind(self, key: Key, attr: str) -> tuple[list[int], torch.dtype]:
        """Shape and dtype of all rows of an attribute in shards."""
        shelf = self.shelves[key]
        stored = shelf.columns[attr]
        dtype = torch.float32 if attr in shelf.decoders else stored.dtype
        return [shelf.owners.division.num_nodes, *stored.shape[1:]], dtype

    @property
    def together(self) -> int:
        """Batches that are to be asked for at once."""
        return self._fetcher.together

    def ask(self, make: Callable[[], tuple[Sequence[Any], Sequence[Wanted]]]) -> Window:
        """Begins to make some batches, and to fetch the rows that they want; see ``Window``."""
        return Window(self._fetcher, make)

    def sample(self, asked: Sequence[Asked], num_threads: int) -> list[Any]:
        """Samples batches whose neighbours lie in shards; see :func:`~.window.sample`."""
        return sample(self._fetcher.exchange, self._names, asked, num_threads)


def _shelf(part: OpenedFiles, owners: Owners, numbers: Any, attrs: Mapping[str, str]) -> Shelf:
    """The part's own rows of some attributes."""
    rows = {attr: part.rows(file) for attr, file in attrs.items()}
    encoded = {attr: each for attr, each in rows.items() if isinstance(each, EncodedRows)}
    stored = {attr: part.view(file) for attr, file in attrs.items()}
    files = [_core.ColumnFile.of(part.column(file)) for file in attrs.values()]
    return Shelf(owners, numbers, stored, files, encoded)


def _numbers(rows: EncodedRows | None) -> list[float] | None:
    """The numbers that rows are decoded by."""
    if rows is None or rows.scale is None or rows.zero_point is None:
        return None
    return torch.cat([rows.scale.view(-1), rows.zero_point.view(-1)]).tolist()


class ShardedStore(Store):
    """A store in shards, opened by ``gz.open_shards``. Every rank is to call ``close()``."""

    def __init__(self, opened: Shards, exchange: Exchange, ranks: _Ranks, how: Opening) -> None:
        super().__init__(opened.directory / WHOLE, how=how)
        self._opened = opened
        self._exchange = exchange
        self._ranks = ranks
        room = (None, 0) if opened.is_shown_in_part else self._take_room()
        opened.serve(self.contents, Fetcher(exchange, *room, repr(how.memory)))

    def _take_room(self) -> tuple[int | None, int]:
        """Bytes of the budget for batches of shards, and how many of them for rows that are kept.

        No limit where the plan of memory, which edges that every rank has take part in, needs all
        of it. Where there is no room for this rank's part, its rows are read past the page cache
        from now on.
        """
        used, memory, part = private_rss(), self.contents.memory, folder_bytes(self.part)
        left = max(0, memory - used)
        spare = memory - 2 * (used + folder_bytes(self.contents.path))
        if spare >= 2 * part:
            spare -= part
        else:
            self._exchange.reader = _core.DiskGather(buffer_bytes=READER_BYTES // 2)
        if self._opened.has_topology:
            return left, max(2 * spare // 3, left // 6)
        if spare <= 0:
            return None, 0
        self.contents.memory -= spare
        return spare, 2 * spare // 3

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedError(
            f"{self.path}: pickle: found a store in shards, expected gz.open_shards() on each rank"
        )

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:  # whoever serves the others after an error would keep them from hearing of it
            self._exchange.fail()

    @property
    def part(self) -> Path:
        """This rank's part, a store with the rows of its own nodes."""
        return self._opened.directory / part_name(self._opened.rank)

    @property
    def source(self) -> str:
        """Checksum of the store that was divided."""
        return self._opened.manifest.source

    def nodes(self, node_type: str | None = None) -> range | Tensor:
        """The nodes of this rank's part, which rise; loaders of them fetch the least."""
        return self._opened.owners[node_type].nodes(self._opened.rank)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, each of which calls this."""
        return self._ranks.gather(value, self._ranks.group())

    def again(
        self, drafts: Sequence[Draft], attrs: Mapping[str | None, Collection[str]]
    ) -> ShardedStore:
        """Opens it once more, on all ranks: with drafts, and these attributes of the nodes."""
        return _open(self._opened.directory, self._ranks, self.how, drafts, attrs)

    @property
    def exchanged(self) -> ExchangeStats:
        """Exchanges and bytes of this rank until now."""
        return self._exchange.stats

    def close(self) -> None:
        """Serves the other ranks until they close too, then lets go of the files."""
        self._exchange.leave()
        super().close()
