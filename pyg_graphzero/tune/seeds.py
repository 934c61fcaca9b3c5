"""Seeds of training as they are named: sets and masks of a store, files, or node ids."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.loader.inputs import check_input_nodes
from pyg_graphzero.pyg.data import DiskData, DiskHeteroData, contents_of, node_storages
from pyg_graphzero.pyg.lazy import raw_items
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.reading import read_numbers

# Sets in which seeds are looked for where none are named.
_TRAINING_SETS = ("train_idx", "train_mask")


@dataclass
class ChosenSeeds:
    """Seeds, and what they are called.

    Attributes:
        name: Names, file, or how many.
        node_type: Their type.
        nodes: ``int64 [num_seeds]``.
    """

    name: str
    node_type: str | None
    nodes: Tensor


def choose_seeds(
    data: DiskData | DiskHeteroData, seeds: Any, input_type: str | None = None
) -> ChosenSeeds:
    """The seeds that are meant; see ``optimize``.

    Raises:
        ValueError: Names that no node type has, or several; no seeds.
        IndexError: A seed is not a node.
    """
    if isinstance(seeds, str | os.PathLike):
        name, node_type, nodes = _named(data, os.fspath(seeds), input_type)
    else:
        if isinstance(data, DiskHeteroData) and input_type is not None:
            seeds = (input_type, seeds)
        found = check_input_nodes(data, seeds)
        node_type, nodes = found if isinstance(data, DiskHeteroData) else (None, found)
        name = ""
    if nodes is None:
        nodes = torch.arange(int((data if node_type is None else data[node_type]).num_nodes))
    if nodes.dtype == torch.bool:
        nodes = nodes.nonzero().view(-1)
    if nodes.numel() == 0:
        raise ValueError(f"seeds: found none in {name or 'what was given'}, expected at least one")
    return ChosenSeeds(name or f"{nodes.numel():,} nodes", node_type, nodes)


def _named(
    data: DiskData | DiskHeteroData, names: str, input_type: str | None
) -> tuple[str, str | None, Tensor]:
    types = list(node_storages(data))
    if input_type is not None and input_type not in types:
        raise ValueError(f"input_type: found {input_type!r}, expected one of {types}")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    having = {t: _sets(data, t) for t in types if input_type in (None, t)}
    fitting = [t for t, sets in having.items() if wanted and all(name in sets for name in wanted)]
    if len(fitting) > 1:
        raise ValueError(f"seeds={names!r}: found in {fitting}, expected an input_type")
    if fitting:
        found = [_ids(having[fitting[0]][name]) for name in wanted]
        return names, fitting[0], torch.cat(found).unique() if len(found) > 1 else found[0]
    file = Path(names)
    if not file.is_file():
        there = sorted({name for sets in having.values() for name in sets})
        raise ValueError(
            f"seeds={names!r}: found no such index set, mask or file; there are: "
            f"{', '.join(there) or 'none'}"
        )
    if len(having) > 1:
        raise ValueError(f"seeds={names!r}: found a file, expected an input_type with it")
    (node_type,) = having
    ids = read_numbers(file)
    nodes = check_input_nodes(data, ids if node_type is None else (node_type, ids))
    return str(file), node_type, nodes if node_type is None else nodes[1]


def _sets(data: DiskData | DiskHeteroData, node_type: str | None) -> dict[str, Any]:
    """Index sets and masks of a node type, by name; nothing is built."""
    contents = contents_of(data)
    assert contents is not None
    record = contents.node_type(node_type)
    items = dict(raw_items(node_storages(data)[node_type]))
    masks = [n for n in record.attrs if items[n].dtype == torch.bool and len(items[n].shape) == 1]
    return {name: items[name] for name in (*record.index_sets, *masks)}


def _ids(value: Any) -> Tensor:
    value = value if isinstance(value, Tensor) else value.copy()
    return value.nonzero().view(-1) if value.dtype == torch.bool else value


def training_set(contents: StoreContents, input_type: str | None = None) -> str | None:
    """The name of a set of training nodes; None where the only type (or this one) has none.

    Raises:
        ValueError: No type is named, and none of several has such a set.
    """
    types = [t for t in contents.schema.node_types if input_type in (None, t.name)]
    files = [file for t in types for file in (t.index_sets | t.attrs).items()]
    there = {name for name, file in files if len(contents.column(file).shape) == 1}
    found = next((name for name in _TRAINING_SETS if name in there), None)
    if found is None and input_type is None and contents.schema.is_hetero:
        sets, names = " nor ".join(_TRAINING_SETS), [t.name for t in types]
        expected = f"the name of a set, or an input_type of {names}"
        raise ValueError(f"seeds: found neither {sets}, expected {expected}")
    return found
