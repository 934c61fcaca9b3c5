"""Samplers over a store."""
