"""How neighbours are drawn: what samplers take, checked once; how many, and by which method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType
from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.sampling.windows import check_window
from pyg_graphzero.store.schema import EdgeType

METHODS = ("uniform", "labor")


@dataclass(frozen=True)
class TimeOptions:
    """What a sampler does with times, where there are any.

    Raises:
        ValueError: A choice that there is not, or an option of times without them.
    """

    temporal_strategy: str = "uniform"
    time_attr: str | None = None
    time_window: Any = None
    strict: bool = False

    def __post_init__(self) -> None:
        one_of("temporal_strategy", self.temporal_strategy, ("uniform", "last"))
        object.__setattr__(self, "time_window", check_window(self.time_window))
        for name in ("time_window", "strict"):
            value = getattr(self, name)
            if value and self.time_attr is None:
                raise ValueError(f"{name}={value!r}: found no time_attr, expected one")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Those among a sampler's or loader's arguments: ``locals()`` where it begins."""
        names = (field.name for field in fields(cls))
        return cls(**{name: arguments[name] for name in names if name in arguments})


@dataclass(frozen=True)
class SamplingOptions(TimeOptions):
    """The options of a :class:`~.neighbor.NeighborSampler`, where each is described.

    Raises:
        ValueError: A choice that there is not, or an option of LABOR without it or with what it has
            no meaning for.
    """

    subgraph_type: SubgraphType | str = "directional"
    replace: bool = False
    disjoint: bool = False
    weight_attr: str | None = None
    is_sorted: bool = False
    sample_direction: str = "forward"
    method: str = "uniform"
    layer_dependency: bool = False
    batch_dependency: int = 1
    whole_frontier: bool = False  # in each hop all nodes of a sample draw, not only the newest

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("sample_direction", self.sample_direction, ("forward", "backward"))
        self._check_method()
        object.__setattr__(self, "subgraph_type", SubgraphType(self.subgraph_type))
        object.__setattr__(self, "disjoint", self.disjoint or self.time_attr is not None)

    @property
    def labor(self) -> _core.Labor | None:
        """How the engine draws by ``method``; None: each destination for itself."""
        if self.method == "uniform":
            return None
        return _core.Labor(self.layer_dependency, self.batch_dependency)

    def _check_method(self) -> None:
        one_of("method", self.method, METHODS)
        if not isinstance(self.layer_dependency, bool):
            raise ValueError(
                f"layer_dependency: found {self.layer_dependency!r}, expected True or False"
            )
        batches = self.batch_dependency
        if not isinstance(batches, int) or isinstance(batches, bool) or batches < 1:
            raise ValueError(
                f"batch_dependency: found {batches!r}, expected a number of batches, 1 for batches "
                "that do not depend on each other"
            )
        if self.method == "uniform":
            if self.layer_dependency or batches > 1:
                raise ValueError(
                    f"layer_dependency={self.layer_dependency}, batch_dependency={batches}: found "
                    "method='uniform', expected method='labor', whose options they are"
                )
            return
        if self.replace:
            raise ValueError(
                "method='labor': found replace=True, expected False: it takes each neighbor at "
                "most once"
            )
        if self.temporal_strategy == "last":
            raise ValueError(
                "method='labor': found temporal_strategy='last', which draws nothing; expected "
                "'uniform'"
            )


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError if the argument ``name`` is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name}: found {value!r}, expected one of {choices}")


def fan_outs(
    fanout: NumNeighbors, names: list[EdgeType | None], is_hetero: bool
) -> list[list[int]]:
    """How many neighbours are drawn per hop, by the number of the edge type.

    Raises:
        ValueError: A count below -1, or lists that do not fit the edge types.
    """
    values = fanout.get_values(names) if is_hetero else fanout.get_values()
    if not is_hetero and isinstance(values, dict):
        raise ValueError(
            "num_neighbors: found a dict by edge type, expected a list for a homogeneous graph"
        )
    lists = [values[name] if is_hetero else values for name in names]
    return [
        [_count(k, hop, name) for hop, k in enumerate(hops)]
        for name, hops in zip(names, lists, strict=True)
    ]


def _count(k: Any, hop: int, name: EdgeType | None) -> int:
    """A fan-out; NumPy's integers are taken too."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < -1:
        where = f"num_neighbors[{hop}]" + ("" if name is None else f" of {name}")
        raise ValueError(f"{where}: found {k!r}, expected a count, 0, or -1 for all neighbors")
    return int(k)


def check_given(neighbor_sampler: Any, arguments: Mapping[str, Any]) -> None:
    """A loader's ``method`` and its options are those of the sampler it is given, or left out.

    Raises:
        ValueError: They are not.
    """
    if neighbor_sampler is None:
        return
    for name in ("method", "layer_dependency", "batch_dependency", "time_window", "strict"):
        value, default = arguments[name], getattr(SamplingOptions, name)
        if value != default and getattr(neighbor_sampler, name, None) != value:
            raise ValueError(
                f"{name}: found {value!r} beside a neighbor_sampler, which draws in its own way; "
                "give it to the sampler instead"
            )
