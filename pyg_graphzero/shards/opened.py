"""``gz.open_shards``: a store in shards, whose batches have rows that other ranks have."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import asdict
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.shards.exchange import Exchange, Nodes, Shelf, Window
from pyg_graphzero.shards.owners import Owners
from pyg_graphzero.store.columns import EncodedRows, in_memory
from pyg_graphzero.store.manifest import PART_ATTR, WHOLE, Manifest, part_name
from pyg_graphzero.store.opened import OpenedFiles, Opening


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
    that was divided. The topology is whole on every rank (``gz.shard(topology="whole")``)
    and so are narrow attributes; other rows are fetched from the ranks that have them.

    Call ``close()`` on every rank, before the process group ends: it serves the other ranks until
    they close too. A rank that ends without it is an error for the others.

    Args:
        path: The directory with the shards; there must be ``whole``, and the part of this rank's
            number in the group.
        group: The ranks, one for each part; None: all. The exchange makes a group of its own.
        timeout: Seconds until a rank that does not answer counts as lost.
        memory: See ``gz.open``; rows of up to twelve batches that are fetched come on top.
        processes: See ``gz.open``.
        strict: See ``gz.open``.
        row_cache: See ``gz.open``.

    Raises:
        ValueError: On all ranks: a part is missing on one, or parts are of different stores or
            versions, or as many as there are not ranks.
        UnsupportedError: The topology is in parts, too.
    """
    if not dist.is_initialized():
        raise ValueError(
            "group: found no process group, expected torch.distributed.init_process_group() before"
        )
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    own = dist.new_group(
        ranks, timedelta(seconds=timeout), backend="gloo", use_local_synchronization=True
    )
    directory, store, error = Path(os.path.realpath(path)), None, None
    try:
        store = _Opened(directory, dist.get_rank(own), len(ranks))
        found: Any = store.identity
    except Exception as caught:
        error, found = caught, f"{type(caught).__name__}: {caught}"
    everyone: list[Any] = [None] * len(ranks)
    dist.all_gather_object(everyone, found, group=own)
    _check_alike(everyone, error)
    assert store is not None
    return ShardedStore(
        store,
        Exchange(store.shelves, own, str(directory)),
        memory=memory,
        processes=processes,
        strict=strict,
        row_cache=row_cache,
    )


def _check_alike(everyone: list[Any], error: Exception | None) -> None:
    """Raises on every rank if one of them could not open its part, or another store's."""
    if isinstance(error, UnsupportedError):
        raise error
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


class _Opened:
    """A rank's part, checked against the manifest."""

    def __init__(self, directory: Path, rank: int, size: int) -> None:
        manifest = Manifest.load(directory)
        if manifest.topology != "whole":
            raise UnsupportedError(
                f"{directory}: found topology={manifest.topology!r}, expected shards by "
                "gz.shard(topology='whole'): sampling across ranks is not built"
            )
        if manifest.parts != size:
            raise ValueError(
                f"{directory}: found {manifest.parts} parts, expected {size}: one for each rank"
            )
        self.directory, self.manifest = directory, manifest
        OpenedFiles(directory / WHOLE)  # which is opened again once all ranks have theirs
        part = OpenedFiles(directory / part_name(rank))
        self.shelves: dict[str | None, Shelf] = {}
        for division in manifest.node_types:
            record, numbers = part.node_type(division.own), None
            if division.bounds is None:
                every = part.node_type(division.every)
                numbers = in_memory(part.view(every.attrs[PART_ATTR]))
            owners = Owners(division, numbers)
            nodes, rows = owners.nodes(rank), {a: part.rows(f) for a, f in record.attrs.items()}
            if len(nodes) != record.num_nodes:
                raise ValueError(
                    f"{part.path}: found {record.num_nodes} nodes of {division.every!r}, expected "
                    f"{len(nodes)} by the manifest"
                )
            encoded = {a: each for a, each in rows.items() if isinstance(each, EncodedRows)}
            stored = {a: part.view(file) for a, file in record.attrs.items()}
            self.shelves[division.name] = Shelf(owners, nodes, stored, encoded)

    @property
    def identity(self) -> dict[str, Any]:
        """Whatever all ranks must have alike."""
        columns = {
            str(name): {
                attr: (str(rows.dtype), list(rows.shape[1:]), _numbers(shelf.decoders.get(attr)))
                for attr, rows in shelf.columns.items()
            }
            for name, shelf in self.shelves.items()
        }
        release = version("pyg_graphzero")
        return {"version": release, **asdict(self.manifest), "columns": columns}


def _numbers(rows: EncodedRows | None) -> list[float] | None:
    """The numbers that rows are decoded by."""
    if rows is None or rows.scale is None or rows.zero_point is None:
        return None
    return torch.cat([rows.scale.view(-1), rows.zero_point.view(-1)]).tolist()


class _Shards:
    """Attributes that lie in shards, for what makes batches."""

    def __init__(self, opened: _Opened, exchange: Exchange) -> None:
        self._opened = opened
        self._exchange = exchange

    def attrs(self, name: str | None, whole: Collection[str]) -> list[str]:
        """All attributes of a node type in order, of which ``whole`` are not in shards."""
        there = {*whole, *self._opened.shelves[name].columns}
        ordered = [attr for attr in self._opened.manifest.of(name).attrs if attr in there]
        return [*ordered, *(attr for attr in whole if attr not in ordered)]

    def kind(self, name: str | None, attr: str) -> tuple[list[int], torch.dtype]:
        """Shape and dtype of all rows of an attribute in shards."""
        shelf = self._opened.shelves[name]
        stored = shelf.columns[attr]
        dtype = torch.float32 if attr in shelf.decoders else stored.dtype
        return [shelf.owners.division.num_nodes, *stored.shape[1:]], dtype

    def ask(self, batches: list[Nodes]) -> Window:
        """See :meth:`Exchange.ask`."""
        return self._exchange.ask(batches)


class ShardedStore(Store):
    """A store in shards, opened by ``gz.open_shards``. Every rank is to call ``close()``."""

    def __init__(self, opened: _Opened, exchange: Exchange, **options: Any) -> None:
        super().__init__(opened.directory / WHOLE, how=Opening(**options))
        self._exchange = exchange
        self.contents.shards = _Shards(opened, exchange)

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedError(
            f"{self.path}: pickle: found a store in shards, expected gz.open_shards() on each rank"
        )

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:  # whoever serves the others after an error would keep them from hearing of it
            self._exchange.fail()

    def close(self) -> None:
        """Serves the other ranks until they close too, then lets go of the files."""
        self._exchange.leave()
        super().close()
