"""What samplers that know times share: their options, and seeds with times and windows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.sampling.base import GraphSampler, Prepared
from pyg_graphzero.sampling.options import TimeOptions
from pyg_graphzero.sampling.windows import (
    PER_SEED,
    Windows,
    latest_seen,
    seed_times,
    windows_of,
)
from pyg_graphzero.store.columns import engine_array, gather
from pyg_graphzero.store.edge_order import earlier


class TimedSampler(GraphSampler):
    """A sampler whose seeds have times, where it has a ``time_attr``.

    A subclass sets ``options``, and says how many windows an edge type has. ``graph`` has the times
    (``add_order``).
    """

    options: TimeOptions

    def __getattr__(self, name: str) -> Any:
        """The options, as attributes that PyG's sampler has."""
        options = vars(self.__dict__["options"]) if "options" in self.__dict__ else {}
        if name not in options:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return options[name]

    def __setattr__(self, name: str, value: Any) -> None:
        options = self.__dict__.get("options")
        if options is not None and name in vars(options):
            name, value = "options", replace(options, **{name: value})
        super().__setattr__(name, value)

    @property
    @abstractmethod
    def _num_windows(self) -> int:
        """How many windows each edge type has, one a hop."""

    def windows(self) -> Windows:
        """The windows by edge type and hop.

        Raises:
            ValueError: They do not fit the graph or the hops.
        """
        return windows_of(self.options.time_window, self.graph.edge_types, self._num_windows)

    @property
    def _window_rows(self) -> list[list[int]]:
        """The windows as the engine takes them."""
        windows = self.windows()
        return windows.rows if windows.lengths else []

    def prepare_nodes(self, inputs: NodeSamplerInput, windows: Tensor | None = None) -> Prepared:
        """What to sample around seed nodes.

        Args:
            inputs: The seeds.
            windows: Of each, where the sampler's are those of seeds.
        """
        nodes, times = inputs.node, inputs.time
        if times is not None:
            times = self._seed_times(times, nodes.numel())
        seeds = [self._typed_seeds(inputs.input_type, nodes, times, windows)]
        return Prepared(seeds, lambda sampled: (inputs.input_id, inputs.time))

    def _seed_times(self, times: Tensor, count: int) -> Tensor:
        as_float = self.graph.float_times
        if as_float is None:
            raise ValueError("seed times: found some, expected none without a time_attr")
        own = seed_times(times, count, "seed times", as_float, self.time_attr)
        return latest_seen(own, self.strict)

    def _typed_seeds(
        self, node_type: str | None, nodes: Tensor, times: Tensor | None, windows: Tensor | None
    ) -> tuple[int, Any, Any]:
        number, rows = self._seeds(node_type, nodes)
        as_float = self.graph.float_times
        if as_float is None:
            return number, engine_array(rows), None
        if times is None:
            times = latest_seen(self._times_of(node_type, nodes), self.strict)
        lengths = self.windows().lengths
        if PER_SEED in lengths and windows is None:
            raise ValueError("time_window: found none, expected one for each seed, as a loader has")
        of_seeds = times + 1 if self.strict else times
        limits = [
            earlier(of_seeds, windows if length == PER_SEED else length, as_float)
            for length in lengths
        ]
        return number, engine_array(rows), engine_array(torch.cat([times, *limits]).contiguous())

    def _times_of(self, node_type: str | None, nodes: Tensor) -> Tensor:
        if node_type not in self.graph.node_times:
            of = "the seeds" if node_type is None else f"the {node_type!r} seeds"
            raise ValueError(
                f"seed times: found none, and {of} have no {self.time_attr!r} of their own; give "
                "input_time (or edge_label_time)"
            )
        own, nodes = self.graph.node_times[node_type], nodes.to(torch.int64).view(-1)
        outside = nodes[(nodes < 0) | (nodes >= own.numel())]
        if outside.numel():
            raise IndexError(
                f"seeds: found node {int(outside[0])}, expected 0 <= node < {own.numel()}"
            )
        return gather(own, nodes)
