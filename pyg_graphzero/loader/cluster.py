"""``ClusterData`` and ``ClusterLoader``: batches of parts of a graph (Cluster-GCN)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.errors import MissingAttributeError, UnsupportedError
from pyg_graphzero.loader.inputs import homogeneous
from pyg_graphzero.loader.subgraphs import SubgraphLoader, induced
from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.util.arguments import check_count


@dataclass
class Partition:
    """The nodes of every part.

    Attributes:
        partptr: ``int64 [num_parts + 1]``: where each part begins in ``node_perm``.
        node_perm: ``int64 [num_nodes]``: the nodes, part by part.
    """

    partptr: Tensor
    node_perm: Tensor


class ClusterData(torch_geometric.loader.ClusterData):
    """A graph in parts; see PyG's class of the same name.

    The graph stays where it is, in its order: ``data`` is not permuted, and no edge is copied.

    Args:
        data: A homogeneous store, its ``.data()``, or ``Data`` in memory.
        num_parts: How many parts.
        recursive: METIS bisects recursively instead of k-way.
        save_dir: Where the partition is kept, to be read the next time.
        filename: Under which name.
        log: Accepted; nothing is printed.
        keep_inter_cluster_edges: Only False.
        sparse_format: Accepted; parts are of the undirected graph.
        partition: Parts of the nodes: None for METIS (needs ``pymetis``, and the edges in memory);
            ``"ranges"`` for ranges of node ids; the name of a node attribute, or a tensor
            ``[num_nodes]``, with the part of every node.

    ``cluster`` is the part of every node, ``int64 [num_nodes]``: to keep it as a column of a store
    opened with ``mode="r+"``, give it to ``store.feature_store.put_tensor``.

    Raises:
        ImportError: METIS is wanted, and ``pymetis`` is not installed.
        TypeError: The graph is heterogeneous.
        ValueError: The partition does not fit the graph.
        UnsupportedError: ``keep_inter_cluster_edges``.
        DoesNotFitError: METIS is wanted of a large store, opened with ``strict=True``.

    Example:
        >>> import pyg_graphzero as gz
        >>> clusters = gz.loader.ClusterData(gz.open(example_store), 2, partition="ranges")
        >>> clusters.cluster.tolist(), clusters[1].n_id.tolist()
        ([0, 0, 1, 1], [2, 3])
    """

    def __init__(
        self,
        data: Any,
        num_parts: int,
        recursive: bool = False,
        save_dir: str | None = None,
        filename: str | None = None,
        log: bool = True,
        keep_inter_cluster_edges: bool = False,
        sparse_format: str = "csr",
        *,
        partition: Any = None,
    ) -> None:
        check_count("num_parts", num_parts)
        if keep_inter_cluster_edges:
            raise UnsupportedError(
                "keep_inter_cluster_edges: found True, expected False; for the edges into a part "
                "from others, use NeighborLoader with num_neighbors=[-1] and the part's nodes"
            )
        self.data = homogeneous(data, "data")
        self.sampler = induced(self.data)
        self.num_parts, self.recursive = num_parts, recursive
        self.keep_inter_cluster_edges, self.sparse_format = False, sparse_format
        path = Path(save_dir or "") / f"part_{num_parts}{'_recursive' * recursive}"
        path, what = path / (filename or "clusters.pt"), "partition"
        is_saved = save_dir is not None and partition is None
        if is_saved and path.exists():
            what, partition = str(path), torch.load(path, weights_only=True)
        self.cluster = self._check(what, self._clusters(partition))
        if is_saved and what == "partition":
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(self.cluster, path)
        node_perm = self.cluster.argsort(stable=True)
        self.partition = Partition(index2ptr(self.cluster[node_perm], num_parts), node_perm)

    def _clusters(self, partition: Any) -> Any:
        graph, num_nodes = self.sampler.graph, self.sampler.graph.node_types[None]
        if partition is None:
            return metis(graph, self.num_parts, self.recursive)
        if not isinstance(partition, str):
            return partition
        if partition == "ranges":
            return torch.arange(num_nodes) * self.num_parts // max(1, num_nodes)
        if partition not in self.data:
            raise MissingAttributeError(
                f"partition={partition!r}: found no such attribute of nodes, expected one of "
                f"{sorted(map(str, self.data.keys()))}, 'ranges', None for METIS, or a tensor"
            )
        return self.data[partition]

    def _check(self, what: str, given: Any) -> Tensor:
        cluster = torch.as_tensor(given).cpu()
        num_nodes = self.sampler.graph.node_types[None]
        if list(cluster.shape) != [num_nodes] or cluster.dtype.is_floating_point:
            raise ValueError(
                f"{what}: found {cluster.dtype} of shape {list(cluster.shape)}, expected an "
                f"integer for each of {num_nodes} nodes"
            )
        cluster = cluster.to(torch.int64)
        bad = (cluster < 0) | (cluster >= self.num_parts)
        if bad.any():
            at = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"{what}[{at}]: found part {int(cluster[at])}, expected "
                f"0 <= part < {self.num_parts}, which is num_parts"
            )
        return cluster

    def nodes_of(self, parts: Tensor) -> Tensor:
        """The nodes of some parts, ``int64 [n]``, one part after the other."""
        ptr = self.partition.partptr
        bounds = zip(ptr[parts].tolist(), ptr[parts + 1].tolist(), strict=True)
        return torch.cat([self.partition.node_perm[a:b] for a, b in bounds])

    def __getitem__(self, idx: int) -> Data:
        if not -len(self) <= idx < len(self):
            raise IndexError(f"part: found {idx}, expected 0 <= part < {len(self)}")
        part: Data = ClusterLoader(self).collate_fn([idx % len(self)])
        return part


class ClusterLoader(SubgraphLoader[Data], torch_geometric.loader.ClusterLoader):
    """Batches of parts, with the edges within and between them; see PyG's class of the same name.

    Args:
        cluster_data: A :class:`ClusterData`.
        device: Where batches are delivered; see ``NeighborLoader``.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``: ``batch_size`` is a number of parts.

    Batches have the nodes part by part, all edges among them, and what is known of both; ``n_id``
    and ``e_id`` are the original ids.

    Example:
        >>> import pyg_graphzero as gz
        >>> clusters = gz.loader.ClusterData(gz.open(example_store), 4, partition="ranges")
        >>> [batch.num_nodes for batch in gz.loader.ClusterLoader(clusters, batch_size=2)]
        [2, 2]
    """

    def __init__(self, cluster_data: ClusterData, *, device: Any = None, **kwargs: Any) -> None:
        if not isinstance(cluster_data, ClusterData):
            kind = type(cluster_data)
            raise TypeError(
                f"cluster_data: found {kind.__module__}.{kind.__qualname__}, expected "
                "gz.loader.ClusterData"
            )
        self.cluster_data = cluster_data
        self._start(cluster_data.data, len(cluster_data), cluster_data.sampler, device, kwargs)

    def _nodes(self, index: Tensor, key: int) -> dict[str | None, Tensor]:
        return {None: self.cluster_data.nodes_of(index)}


def metis(graph: SampledGraph, num_parts: int, recursive: bool = False) -> Tensor:
    """The part of every node, ``int64 [num_nodes]``: few edges between, and parts of like size.

    Karypis and Kumar 1998, "A fast and high quality multilevel scheme for partitioning irregular
    graphs".

    Raises:
        ImportError: ``pymetis`` is not installed.
        DoesNotFitError: The edges would be a large part of a store's budget, opened with
            ``strict=True``.
    """
    num_nodes = graph.node_types[None]
    if num_parts == 1 or num_nodes == 0:
        return torch.zeros(num_nodes, dtype=torch.int64)
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "ClusterData: found no METIS, expected pymetis (pip install pymetis); partition= takes "
            "'ranges' of node ids, or a partition made elsewhere"
        ) from error
    if graph.contents is not None:
        num_edges = sum(t.num_edges for t in graph.contents.schema.edge_types)
        graph.contents.tell_use(
            "the edges, both ways, for METIS", 48 * num_edges,
            "give partition='ranges' of node ids, or a partition made elsewhere",
        )  # fmt: skip
    bounds, sources = graph.bounds(None), graph.sources(None)
    to = torch.repeat_interleave(torch.arange(num_nodes), bounds.diff())
    both = torch.cat([torch.stack([to, sources]), torch.stack([sources, to])], dim=1)
    row, col = coalesce(remove_self_loops(both)[0], num_nodes=num_nodes)
    adjacency = pymetis.CSRAdjacency(index2ptr(row, num_nodes).numpy(), col.numpy())
    _, found = pymetis.part_graph(num_parts, adjacency, recursive=recursive)
    return torch.as_tensor(found, dtype=torch.int64)
