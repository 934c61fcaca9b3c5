"""pyg_graphzero: train PyTorch Geometric models on graphs that live on disk.

Example:
    >>> import pyg_graphzero as gz
    >>> store = gz.open(example_store)
    >>> loader = gz.loader.NeighborLoader(store.data(), num_neighbors=[2, 2], batch_size=2)
"""

# torch first: the engine uses the OpenMP runtime that torch brings.
import torch  # isort: skip

from importlib.metadata import version as _version

from pyg_graphzero import _core, disk, inference, loader, nn, rag, sampler
from pyg_graphzero.conversion import ConvertSummary, convert
from pyg_graphzero.errors import (
    ClosedStoreError,
    DoesNotFitError,
    FormatError,
    GraphZeroError,
    InputError,
    InputWarning,
    MemoryBudgetError,
    MemoryUseWarning,
    MissingAttributeError,
    MissingEdgeIdsError,
    RankLostError,
    ReadOnlyStoreError,
    StoreInUseError,
    StoreReplacedError,
    UnsupportedError,
)
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.pyg.stores import Store, info, open
from pyg_graphzero.reporting.page import Report
from pyg_graphzero.reporting.run import report
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.shards.opened import ShardedStore, open_shards
from pyg_graphzero.shards.split import PartSummary, ShardSummary, shard
from pyg_graphzero.store.column_writer import Column
from pyg_graphzero.store.verify import VerifyReport, verify
from pyg_graphzero.tune.diagnosis import Advice, Diagnosis
from pyg_graphzero.tune.doctor import doctor
from pyg_graphzero.tune.optimize import OptimizeSummary, optimize

if not _core.threads_are_torchs:  # its number is asked for, once
    _core.set_num_threads(torch.get_num_threads())

__version__ = _version("pyg_graphzero")

__all__ = [
    "Advice",
    "ClosedStoreError",
    "Column",
    "ConvertSummary",
    "Diagnosis",
    "DoesNotFitError",
    "FormatError",
    "GraphZeroError",
    "InputError",
    "InputWarning",
    "MemoryBudgetError",
    "MemoryPlan",
    "MemoryUseWarning",
    "MissingAttributeError",
    "MissingEdgeIdsError",
    "OptimizeSummary",
    "PartSummary",
    "RankLostError",
    "ReadOnlyStoreError",
    "Report",
    "SamplingOptions",
    "ShardSummary",
    "ShardedStore",
    "Store",
    "StoreInUseError",
    "StoreReplacedError",
    "UnsupportedError",
    "VerifyReport",
    "convert",
    "disk",
    "doctor",
    "inference",
    "info",
    "loader",
    "nn",
    "open",
    "open_shards",
    "optimize",
    "rag",
    "report",
    "sampler",
    "shard",
    "verify",
]


def __dir__() -> list[str]:
    """Names for users; modules of this package that happen to be loaded are left out."""
    return [*__all__, "__version__"]
