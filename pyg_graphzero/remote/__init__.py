"""PyG's ``FeatureStore`` and ``GraphStore`` over a store."""
