"""How batches are drawn: the options that users give, and a neighbour sampler's description."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType
from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.sampling.windows import check_window
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import of_type

Key = TypeVar("Key")

#: Options of how neighbours are drawn: a sampler's.
OF_NEIGHBORS = ("method", "layer_dependency", "batch_dependency", "strictly_earlier")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError if the argument ``name`` is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name}: found {value!r}, expected one of {choices}")


@dataclass(frozen=True)
class SamplingOptions:
    """How neighbours, negatives and seeds are drawn, where PyG has no argument for it.

    Loaders and samplers take it as ``options``, and refuse a field that means nothing to them.

    Args:
        method: ``"uniform"``: every node draws for itself (in proportion to ``weight_attr``, where
            there is one). ``"labor"``: it draws with the same probabilities, but all nodes of a hop
            by the same random number for each neighbour, so that they share neighbours where they
            can, and a batch has fewer nodes (Balin & Catalyurek 2023, "Layer-Neighbor Sampling").
            Costs O(degree) a node; edges of the same two nodes are drawn together.
        layer_dependency: With ``"labor"``: the hops share these numbers too.
        batch_dependency: With ``"labor"``: over how many consecutive batches of an epoch the
            numbers drift from one set to the next (Balin et al. 2023, "Cooperative Minibatching in
            Graph Neural Networks"); 1: each batch has its own. Needs a loader of this package.
        strictly_earlier: With ``time_attr``: nothing of the seed's very time is drawn either.
        exclude_edges: No negative is an edge of the graph (PyG's may be).
        seed_order: Where seeds are all edges of a store: ``"input"``: position i is edge i, as in
            PyG, which costs 4 bytes an edge if the input was not sorted by destination.
            ``"store"``: positions are by destination, as edges lie in the store, which costs
            nothing; ``input_id`` says which edge a seed is.

    Raises:
        ValueError: A choice that there is not, or an option of LABOR without it.

    Example:
        >>> import pyg_graphzero as gz
        >>> loader = gz.loader.NeighborLoader(
        ...     gz.open(example_store), num_neighbors=[2, 2], batch_size=2, shuffle=True,
        ...     options=gz.SamplingOptions(method="labor"),
        ... )
        >>> len(list(loader))
        2
    """

    method: str = "uniform"
    layer_dependency: bool = False
    batch_dependency: int = 1
    strictly_earlier: bool = False
    exclude_edges: bool = False
    seed_order: str = "input"

    def __post_init__(self) -> None:
        one_of("method", self.method, ("uniform", "labor"))
        one_of("seed_order", self.seed_order, ("input", "store"))
        for name in ("layer_dependency", "strictly_earlier", "exclude_edges"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name}: found {value!r}, expected True or False")
        batches = self.batch_dependency
        if not isinstance(batches, int) or isinstance(batches, bool) or batches < 1:
            raise ValueError(
                f"batch_dependency: found {batches!r}, expected a number of batches, 1 for batches "
                "that do not depend on each other"
            )
        if self.method == "uniform" and (self.layer_dependency or batches > 1):
            raise ValueError(
                f"layer_dependency={self.layer_dependency}, batch_dependency={batches}: found "
                "method='uniform', expected method='labor', whose options they are"
            )

    @property
    def of_neighbors(self) -> SamplingOptions:
        """Options of how neighbours are drawn alone: a sampler's."""
        return SamplingOptions(**{name: getattr(self, name) for name in OF_NEIGHBORS})


@dataclass(frozen=True)
class Description:
    """How a :class:`~.neighbor.NeighborSampler` draws: PyG's arguments and ours, as one.

    Raises:
        ValueError: A choice that there is not, an option of times without them, or LABOR with what
            it has no meaning for.
    """

    subgraph_type: SubgraphType | str = "directional"
    replace: bool = False
    disjoint: bool = False
    temporal_strategy: str = "uniform"
    time_attr: str | None = None
    weight_attr: str | None = None
    is_sorted: bool = False
    sample_direction: str = "forward"
    time_window: Any = None
    options: SamplingOptions = SamplingOptions()
    whole_frontier: bool = False  # in each hop all nodes of a sample draw, not only the newest

    def __post_init__(self) -> None:
        one_of("temporal_strategy", self.temporal_strategy, ("uniform", "last"))
        one_of("sample_direction", self.sample_direction, ("forward", "backward"))
        object.__setattr__(self, "time_window", check_window(self.time_window))
        if isinstance(self.time_window, Tensor):
            raise ValueError(
                "time_window: found one for each seed, expected a number: a loader, which has the "
                "seeds, takes them"
            )
        object.__setattr__(self, "subgraph_type", SubgraphType(self.subgraph_type))
        object.__setattr__(self, "disjoint", self.disjoint or self.time_attr is not None)
        strictly = self.options.strictly_earlier
        for name, value in (("time_window", self.time_window), ("strictly_earlier", strictly)):
            if value and self.time_attr is None:
                raise ValueError(f"{name}={value!r}: found no time_attr, expected one")
        if self.options.method == "labor":
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

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """From a sampler's or loader's arguments: ``locals()`` where it begins."""
        names = (field.name for field in fields(cls))
        own = {name: arguments[name] for name in names if name in arguments}
        return cls(**own if arguments["directed"] else own | {"subgraph_type": "induced"})

    @property
    def labor(self) -> _core.Labor | None:
        """How the engine draws by ``method``; None: each destination for itself."""
        options = self.options
        if options.method == "uniform":
            return None
        return _core.Labor(options.layer_dependency, options.batch_dependency)


def options_of(
    given: SamplingOptions | None, who: Any, taken: Collection[str], sampler: Any = None
) -> SamplingOptions:
    """Options that were given to a loader or sampler, none of which means nothing to it.

    Args:
        given: The options; None: all as they are by default.
        who: The loader or sampler.
        taken: Options that it takes.
        sampler: The sampler that a loader has: options of how neighbours are drawn may be given
            again as they are there.

    Raises:
        TypeError: They are no options.
        ValueError: Another one is set.
    """
    if given is None:
        return SamplingOptions()
    if not isinstance(given, SamplingOptions):
        raise TypeError(f"options: found {type(given).__name__}, expected gz.SamplingOptions")
    drawn = getattr(sampler, "options", None)
    for field in fields(given):
        name, value = field.name, getattr(given, field.name)
        is_drawn = name in OF_NEIGHBORS and value == getattr(drawn, name, None)
        if value != field.default and name not in taken and not is_drawn:
            hint = f"; it takes {', '.join(taken)}"
            if name in OF_NEIGHBORS and sampler is not None:
                hint = f": its {type(sampler).__name__} draws neighbors; give it to the sampler"
            raise ValueError(
                f"options.{name}: found {value!r} for {type(who).__name__}, expected "
                f"{field.default!r}{hint}"
            )
    return given


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
    lists = {name: values[name] if is_hetero else values for name in names}
    checked = counts_of("num_neighbors", lists, -1, "a count, 0, or -1 for all neighbors")
    return list(checked.values())


def counts_of(
    what: str, lists: Mapping[Key, Any], least: int, expected: str
) -> dict[Key, list[int]]:
    """Counts for each hop, by type; NumPy's integers are taken too.

    Raises:
        ValueError: Where a type has none, or one below ``least``; it says what was ``expected``.
    """
    for name, hops in lists.items():
        of = of_type(name)
        if not isinstance(hops, list | tuple):
            raise ValueError(f"{what}{of}: found {hops!r}, expected a list of counts, one a hop")
        for hop, k in enumerate(hops):
            if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < least:
                raise ValueError(f"{what}[{hop}]{of}: found {k!r}, expected {expected}")
    return {name: [int(k) for k in hops] for name, hops in lists.items()}
