// The neighbours of a file in memory of this process's own, in no more bits than a node's number
// has. Unlike the pages of a map they are not taken away where memory is scarce.
#pragma once

#include <cstdint>

#include "arrays/packed_ints.h"
#include "storage/topology.h"

namespace gz {

// Reads the neighbours, by slot. Raises OsError where the file cannot be read, FormatError where it
// was cut short or a neighbour is no node.
PackedInts pack_sources(const Topology& file);

// Bytes of the neighbours of `num_edges` edges from `num_src` nodes.
std::int64_t packed_sources_bytes(std::int64_t num_src, std::int64_t num_edges) noexcept;

}  // namespace gz
