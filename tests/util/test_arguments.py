"""Arguments that name a store: the error where they are something else."""

from __future__ import annotations

import pytest
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz

CALLS = {
    "gz.open": ("path", lambda data: gz.open(data)),
    "gz.info": ("path", lambda data: gz.info(data)),
    "gz.verify": ("path", lambda data: gz.verify(data)),
    "gz.shard": ("path", lambda data: gz.shard(data, "shards", 2)),
    "gz.optimize": ("path", lambda data: gz.optimize(data, seeds=[0], num_neighbors=[1])),
    "gz.doctor": ("store", lambda data: gz.doctor(data)),
    "gz.report": ("store", lambda data: gz.report(data)),
    "gz.inference.layerwise": (
        "store",
        lambda data: gz.inference.layerwise(GraphSAGE(4, 4, num_layers=1), data),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_data_in_place_of_a_store_is_named(name, homo):
    argument, call = CALLS[name]
    with pytest.raises(TypeError) as found:
        call(homo[1].data())
    assert str(found.value) == (
        f"{argument}: found DiskData, expected a path, or a store as gz.open() returns it"
    )
