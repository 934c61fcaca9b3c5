"""``gz.report``: what a store's graph is like, and what of it may hurt training."""
