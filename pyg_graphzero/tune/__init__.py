"""Faster training from a store: copies of the rows that it uses, and advice."""
