"""How destinations draw their neighbours: how many, each for itself or together to save reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_geometric.sampler import NumNeighbors

from pyg_graphzero import _core
from pyg_graphzero.store.schema import EdgeType

METHODS = ("uniform", "labor")

# What says how, with what it is unless said otherwise.
DEFAULTS: dict[str, Any] = {"method": "uniform", "layer_dependency": False, "batch_dependency": 1}


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


def labor_of(
    method: str,
    layer_dependency: bool,
    batch_dependency: int,
    replace: bool,
    temporal_strategy: str,
) -> _core.Labor | None:
    """How the engine draws by ``method``; None: each destination for itself.

    Raises:
        ValueError: An option of LABOR without it, or with what it has no meaning for.
    """
    one_of("method", method, METHODS)
    if not isinstance(layer_dependency, bool):
        raise ValueError(f"layer_dependency: found {layer_dependency!r}, expected True or False")
    is_count = isinstance(batch_dependency, int) and not isinstance(batch_dependency, bool)
    if not is_count or batch_dependency < 1:
        raise ValueError(
            f"batch_dependency: found {batch_dependency!r}, expected a number of batches, 1 for "
            "batches that do not depend on each other"
        )
    if method == "uniform":
        if layer_dependency or batch_dependency > 1:
            raise ValueError(
                f"layer_dependency={layer_dependency}, batch_dependency={batch_dependency}: found "
                "method='uniform', expected method='labor', whose options they are"
            )
        return None
    if replace:
        raise ValueError(
            "method='labor': found replace=True, expected False: it takes each neighbor at most "
            "once"
        )
    if temporal_strategy == "last":
        raise ValueError(
            "method='labor': found temporal_strategy='last', which draws nothing; expected "
            "'uniform'"
        )
    return _core.Labor(layer_dependency, batch_dependency)


def check_given(neighbor_sampler: Any, **given: Any) -> None:
    """A loader's ``method`` and its options are those of the sampler it is given, or left out.

    Raises:
        ValueError: They are not.
    """
    if neighbor_sampler is None:
        return
    for name, value in given.items():
        if value != DEFAULTS[name] and getattr(neighbor_sampler, name, None) != value:
            raise ValueError(
                f"{name}: found {value!r} beside a neighbor_sampler, which draws in its own way; "
                "give it to the sampler instead"
            )
