"""Shared by the benchmark scripts: records, turns, children under a limit, peers, reports."""
