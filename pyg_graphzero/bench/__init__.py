"""``graphzero bench``: this engine and stock PyG side by side, storage and memory disclosed."""
