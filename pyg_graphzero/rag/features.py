"""``gz.rag.FeatureStore``: nodes and edges near a query, and the rows of subgraphs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.errors import MissingAttributeError
from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.pyg.features import DiskFeatureStore
from pyg_graphzero.pyg.stores import Store, check_store
from pyg_graphzero.rag.graph import Slots, made_again, setting
from pyg_graphzero.rag.index import RowIndex, choose
from pyg_graphzero.rag.rows import Embeddings
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.columns import engine_array, gather, look_up
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import check_count, of_type

Searched = dict[Any, Embeddings | RowIndex]


class FeatureStore(DiskFeatureStore):
    """Retrieval from a store for PyG's ``RAGQueryLoader``: its ``RAGFeatureStore`` protocol.

    Nodes whose embeddings are nearest to a query by cosine similarity, from an index, or by reading
    all embeddings within the store's memory budget. Also PyG's ``FeatureStore`` over the store.

    Args:
        store: An opened store, homogeneous or of several types.
        attr: Node attribute with embeddings, ``[num_nodes, width]`` of any floating-point dtype or
            encoding.
        edge_attr: Edge attribute with embeddings, for ``retrieve_seed_edges``.
        node_types: The types that are searched; None: all that have ``attr``.
        index: ``"usearch"`` or ``"faiss"``: an index by that library, made when it is first asked
            for and kept; ``"scan"``: exact, each query reads all rows; ``"auto"``: an index for
            100,000 rows and more, if one of the two is installed.
        index_dir: Directory for indexes; None: ``NAME.index`` beside the store ``NAME``.

    Raises:
        MissingAttributeError: There are no embeddings.
        ValueError: They have several widths, or ``index`` is none of its choices.
        ModuleNotFoundError: The library is not installed.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> features = gz.rag.FeatureStore(gz.open(example_store))
        >>> features.config = {"k_nodes": 2}
        >>> nodes, query = features.retrieve_seed_nodes(torch.tensor([0.0, 0.2, 1.0, 0.0]))
        >>> nodes.tolist(), query.shape
        ([2, 1], torch.Size([1, 4]))
    """

    def __init__(
        self,
        store: Store,
        attr: str = "x",
        *,
        edge_attr: str = "edge_attr",
        node_types: Sequence[str | None] | None = None,
        index: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(check_store(store))
        self._store, self._index, self._edge_attr = store, index, edge_attr
        path = store.path
        self._folder = Path(index_dir or path.with_name(f"{path.name}.index"))
        self._config: dict[str, Any] = {}
        self._again = partial(
            FeatureStore, store, attr, edge_attr=edge_attr, node_types=node_types, index=index,
            index_dir=index_dir,
        )  # fmt: skip
        types = store.contents.schema.node_types
        if node_types is not None:
            types = [store.contents.node_type(name) for name in node_types]
        self._nodes = self._searched(types, attr, every=node_types is not None)

    @property
    def config(self) -> dict[str, Any]:
        """Settings, as PyG's loader passes them on.

        ``k_nodes``: how many nodes a query has; ``k_edges``: how many edges, ``k_nodes`` where it
        is not there; ``encoder_model``: its ``encode(list of queries)`` gives ``[n, width]``.
        Queries that are tensors need none.

        Raises:
            ValueError: They are set without ``k_nodes``.
        """
        return self._config

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        setting(config, "k_nodes", "how many nodes a query has")
        encoder = config.get("encoder_model")
        if isinstance(encoder, torch.nn.Module):
            encoder.eval()
        self._config = config

    def retrieve_seed_nodes(self, query: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        """The ``k_nodes`` nearest nodes to a query, of all types together.

        Args:
            query: A query, or a list of them, as the encoder takes them; or embeddings
                ``[width]`` or ``[num_queries, width]``. Nodes of several queries are put together.
            **kwargs: Ignored.

        Returns:
            Nodes, ``int64 [k_nodes]``, the nearest first (fewer where there are fewer); of several
            types a dict of these by node type. And the query's embeddings, ``float32 [num_queries,
            width]``.

        Raises:
            ValueError: ``config`` was not set, or embeddings have another width.
        """
        encoded = self._encoded(query, self._nodes)
        found = self._nearest(self._nodes, encoded, "k_nodes")
        return (found if self._store.is_hetero else found[None]), encoded

    def retrieve_seed_edges(self, query: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        """The ``k_edges`` nearest edges to a query, of all types together.

        Args:
            query: See :meth:`retrieve_seed_nodes`.
            **kwargs: Ignored.

        Returns:
            Ends, ``int64 [2, k_edges]``, those of the nearest first; of several types a dict of
            these by edge type. And the query's embeddings.

        Raises:
            ValueError: No edge has ``edge_attr``, or as :meth:`retrieve_seed_nodes`.
        """
        encoded = self._encoded(query, self._edges)
        found = self._nearest(self._edges, encoded, "k_edges")
        contents, ends = self._store.contents, {}
        for name, slots in found.items():
            rows = gather(contents.csc(name)[1], slots).to(torch.int64)
            targets = contents.topology(name).destinations(engine_array(slots))
            ends[name] = torch.stack([contents.checked_sources(name, rows), targets])
        return (ends if self._store.is_hetero else ends[None]), encoded

    def load_subgraph(self, sample: Any) -> Data | HeteroData:
        """The subgraph of a sample, with all attributes of its nodes and edges.

        Args:
            sample: Output of :meth:`GraphStore.sample_subgraph`, or of another sampler whose
                ``edge`` has original edge ids. For the latter places of all edges come into
                memory, 4 bytes each.

        Returns:
            A batch as of ``NeighborLoader``; ``node_idx`` and ``edge_idx`` are the original ids
            too, as PyG's filters call them.
        """
        sampler, plan = self._plan
        sampled = sampler.sampled(sample)
        if isinstance(sample.metadata, Slots):
            sampled.slots = sample.metadata.by_type
        else:
            pairs = zip(sampler.graph.edge_types, sampled.slots, strict=True)
            sampled.slots = [self._slots(name, ids) for name, ids in pairs]
        batch = plan.assemble(sampled, plan.gather(sampled, 0))
        for part in batch.stores:
            for key, ours in (("node_idx", "n_id"), ("edge_idx", "e_id")):
                if ours in part:
                    part[key] = part[ours]
        return batch

    @cached_property
    def _edges(self) -> Searched:
        return self._searched(self._store.contents.schema.edge_types, self._edge_attr)

    @cached_property
    def _plan(self) -> tuple[NeighborSampler, BatchPlan]:
        data = self._store.data()
        sampler = NeighborSampler(data, [])
        return sampler, BatchPlan(data, sampler)

    def _searched(self, types: Sequence[Any], attr: str, every: bool = False) -> Searched:
        """The embeddings of the types that have them, or ``every`` one, from their files."""
        contents, found = self._store.contents, dict[Any, Embeddings]()
        having = [each for each in types if attr in each.attrs]
        for each in types if every else having or types:
            what = f"attribute {attr!r}{of_type(each.name)}"
            if attr not in each.attrs:
                there = f"one of {sorted(each.attrs)}" if each.attrs else "some, found none"
                raise MissingAttributeError(f"{contents.path}: {what}: expected {there}")
            found[each.name] = Embeddings(contents, each.attrs[attr], what)
        widths = {name: rows.width for name, rows in found.items()}
        if len(set(widths.values())) != 1:
            raise ValueError(
                f"{contents.path}: attribute {attr!r}: found widths {widths}, expected embeddings "
                "of one width; node_types says which types are searched"
            )
        searched: Searched = {}
        for name, rows in found.items():
            library = choose(self._index, rows.num_rows)
            searched[name] = rows if library is None else RowIndex(rows, library, self._folder)
        return searched

    def _encoded(self, query: Any, searched: Searched) -> Tensor:
        """Embeddings of queries, ``float32 [num_queries, width]``."""
        if not isinstance(query, Tensor):
            queries = list(query) if isinstance(query, (list, tuple)) else [query]
            encoder = setting(self._config, "encoder_model", "an object that encodes queries")
            with torch.no_grad():
                query = encoder.encode(queries)
        encoded = torch.atleast_2d(torch.as_tensor(query).detach().to("cpu", torch.float32))
        width = next(iter(searched.values())).width
        if encoded.dim() != 2 or encoded.size(1) != width:
            raise ValueError(
                f"query: found embeddings of shape {list(encoded.shape)}, expected "
                f"[num_queries, {width}], as {self.handle.path} has them"
            )
        return encoded

    def _nearest(self, searched: Searched, encoded: Tensor, setting_name: str) -> dict[Any, Tensor]:
        """The nearest rows of all types together, of all queries together, each once."""
        default = setting(self._config, "k_nodes", "how many nodes a query has")
        k = self._config.get(setting_name, default)
        check_count(setting_name, k)
        found = [each.nearest(encoded, k) for each in searched.values()]
        nearest: dict[Any, dict[int, None]] = {name: {} for name in searched}
        names = list(searched)
        for of_query in zip(*found, strict=True):
            scores = torch.cat([scores for scores, _ in of_query])
            places = [
                (names[i], row) for i, (_, rows) in enumerate(of_query) for row in rows.tolist()
            ]
            for at in scores.topk(min(k, len(scores))).indices.tolist():
                name, row = places[at]
                nearest[name][row] = None
        return {
            name: torch.tensor(list(rows), dtype=torch.int64)
            for name, rows in nearest.items()
            if rows or name is None
        }

    def _slots(self, name: EdgeType | None, ids: Tensor | None) -> Tensor | None:
        """Places of edges in the store, by their original ids."""
        position = None if ids is None else self._store.contents.edge_position(name)
        return ids if ids is None or position is None else look_up(position, ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again, (self._again, self._config)
