"""Chunks of loops over much data, made tiny: a few rows reach the second one, and the last.

A module or class of tests says ``pytestmark = chunks.both`` and runs twice.
"""

from __future__ import annotations

from importlib import import_module

import pytest

# By module: its constants that say how much is done at once, and what they are made.
TINY: dict[str, dict[str, int]] = {
    "store.column_writer": {"_PIECE_BYTES": 500},
    "store.columns": {
        "_DECODED_ROWS": 3,
        "_INVERTED_ROWS": 30,
    },
    "conversion.blocks": {"BLOCK_BYTES": 64},
    "conversion.ends": {"_STEP": 3},
    "conversion.distinct": {"_SLAB_ROWS": 3, "_MIN_PIECE": 16},
    "conversion.ids": {"_SLAB_ROWS": 3},
    "conversion.triples": {"_BLOCK_BYTES": 16},
    "conversion.join": {"_NEAR_BYTES": 16},
    "conversion.plan": {"CHUNK_BYTES": 64},
    "store.rows": {"SLAB_BYTES": 64, "_READ_BYTES": 16},
    "conversion.spool": {"_SLAB_WORDS": 3},
    "conversion.tables": {"_BATCH_ROWS": 3, "SLAB_BYTES": 64},
    "conversion.text": {"_PIECE_BYTES": 64},
    "inference.normalize": {"_CHUNK": 30},
    "nn.operators": {"LARGE": 1},
    "inference.sweep": {"_ROWS_AT_ONCE": 30},
    "rag.index": {"_LEAST_PART": 2500},
    "rag.rows": {"_LEAST_BYTES": 5000, "_SLAB_BYTES": 5000},
    "reporting.components": {"PIECE": 3},
    "shards.split": {"_EDGES_AT_ONCE": 3, "_NODES_AT_ONCE": 3},
    "reporting.nodes": {"_SLAB_BYTES": 16},
    "memory.ranking": {"_PIECE": 3},
    "store.csc": {"_SLAB_EDGES": 7},
    "store.verify": {"_BLOCKS_PER_STEP": 2, "_ROWS_PER_STEP": 30},
    "memory.costs": {
        **{"MAX_LAYER_EDGES": 64, "LEAST_LAYER_EDGES": 64, "MAX_CHUNK": 2000},
        "MAX_SUMS_ROWS": 64,
    },
    "memory.tables": {"_FIRST_ROWS": 30},
    "memory.prefetch": {"_PIECE": 4096},
}


both = pytest.mark.parametrize("chunks", ["usual", "tiny"], indirect=True)
tiny = pytest.mark.parametrize("chunks", ["tiny"], indirect=True)


@pytest.fixture(autouse=True)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the sizes of chunks as they are, or makes them tiny where a test asks for both."""
    if getattr(request, "param", "usual") == "tiny":
        for module, constants in TINY.items():
            for name, value in constants.items():
                monkeypatch.setattr(import_module(f"pyg_graphzero.{module}"), name, value)
