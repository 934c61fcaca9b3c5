"""A store as PyG sees it: `Data`, `FeatureStore` and `GraphStore`."""
