"""Contestants: each opens the same store and makes PyG's samplers and loaders.

A new one is a subclass of ``Contestant``, named in ``CONTESTANTS``. Nothing else knows how many
there are or what they are called.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch_geometric.loader
import torch_geometric.sampler
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.bench.data import Seeds
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.util.machine import version


class Contestant:
    """This package; a subclass is another way to sample and load.

    An object of it lives in a process of its own.

    Attributes:
        place: Where the graph lies when a round begins.
        node_class: A class with the signature of PyG's ``NeighborLoader``.
        link_class: One with that of PyG's ``LinkNeighborLoader``.
        data: The graph, once it is open.
    """

    place = "page cache"
    node_class: Any = NeighborLoader
    link_class: Any = LinkNeighborLoader
    data: Any

    @classmethod
    def title(cls) -> str:
        """Its name with versions."""
        return f"pyg_graphzero {version('pyg_graphzero')}"

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot take part here, or None."""
        return None

    @classmethod
    def cannot_train(cls, model: str | None) -> str | None:
        """Why its batches will not do for this model of ``training.MODELS``, or None."""
        return None

    def open(self, store: Path) -> None:
        """Does as a script does before it makes a loader."""
        self.data = open_store(store).data()

    def sampler(self, fanout: list[int], threads: int) -> Any:
        """A PyG ``BaseSampler``."""
        return NeighborSampler(self.data, fanout, num_threads=threads)

    def node_loader(self, fanout: list[int], seeds: Seeds, **options: Any) -> Iterable[Any]:
        """A loader over ``seeds.nodes`` in that order; ``options`` are a ``DataLoader``'s."""
        nodes = _typed(seeds.node_type, seeds.nodes)
        return self.node_class(self.data, fanout, input_nodes=nodes, **options)

    def link_loader(self, fanout: list[int], seeds: Seeds, **options: Any) -> Iterable[Any]:
        """A loader over ``seeds.edges``, with as many negatives."""
        options |= {"edge_label_index": _typed(seeds.edge_type, seeds.edges)}
        return self.link_class(self.data, fanout, neg_sampling="binary", **options)


def _typed(name: Any, value: Tensor) -> Any:
    return value if name is None else (name, value)


class StockPyG(Contestant):
    """PyG's own loaders over the whole graph in memory: its scripts read everything first."""

    place = "RAM"
    node_class = torch_geometric.loader.NeighborLoader
    link_class = torch_geometric.loader.LinkNeighborLoader

    @classmethod
    def _backend(cls) -> str | None:
        if torch_geometric.typing.WITH_PYG_LIB:
            return "pyg-lib"
        return "torch-sparse" if torch_geometric.typing.WITH_TORCH_SPARSE else None

    @classmethod
    def title(cls) -> str:
        """PyG and what it samples with."""
        backend = cls._backend()
        own = f"stock PyG {version('torch_geometric')}"
        return f"{own} + {backend} {version(backend)}" if backend else own

    @classmethod
    def missing(cls) -> str | None:
        """PyG alone cannot sample."""
        if cls._backend() is not None:
            return None
        return "PyG needs pyg-lib or torch-sparse to sample, and neither is installed"

    @classmethod
    def cannot_train(cls, model: str | None) -> str | None:
        """Its batches are plain; what torch-sparse samples is not counted by hop."""
        if model == "accelerated":
            return "nn.accelerate needs batches of pyg_graphzero.loader"
        if model == "trimmed" and cls._backend() == "torch-sparse":
            return "PyG counts nodes and edges by hop with pyg-lib alone"
        return None

    def open(self, store: Path) -> None:
        """Copies the graph into memory."""
        super().open(store)
        self.data = _in_memory(self.data)
        gc.collect()  # and lets go of the store

    def sampler(self, fanout: list[int], threads: int) -> Any:
        """PyG's sampler; torch's number of threads is all it goes by."""
        return torch_geometric.sampler.NeighborSampler(self.data, fanout)


def _in_memory(disk: Any) -> Data | HeteroData:
    """A graph like that of a store, as a script has it that never heard of stores."""

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: copied(each) for key, each in value.items()}
        return value.clone() if isinstance(value, Tensor) else value

    kind = HeteroData if isinstance(disk, HeteroData) else Data
    return kind.from_dict(copied(disk.to_dict()))


CONTESTANTS: dict[str, type[Contestant]] = {"graphzero": Contestant, "stock": StockPyG}
