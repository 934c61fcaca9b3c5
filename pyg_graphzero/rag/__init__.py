"""Retrieval for graph RAG: PyG's ``RAGQueryLoader`` over a store, whatever its size."""

from pyg_graphzero.rag.features import FeatureStore
from pyg_graphzero.rag.graph import GraphStore

__all__ = ["FeatureStore", "GraphStore"]
