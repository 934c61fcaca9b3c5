// Runs every test, or those whose name contains an argument; with --tiny-chunks so that every loop
// over much data has many chunks. --names says which test begins, before it may crash. --without
// and a part of a name leaves tests out that an emulator cannot run.
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/chunk_sizes.h"
#include "check.h"

namespace {

// Small and odd, so that a chunk ends within a row, a node, a word.
constexpr gz::ChunkSizes kTiny{.range = 3,
                               .relabelled_edges = 3,
                               .induced_edges = 17,
                               .labor_slack = 1,
                               .linear_subset = 2,
                               .id_map_slots = 2,
                               .summed_nodes = 3,
                               .sum_read_bytes = 4096,
                               .walked_together = 2,
                               .walked_steps = 40,
                               .walked_slots = 3,
                               .slots_ahead = 3,
                               .packed_bounds = 5,
                               .packed_sources = 8,
                               .aggregated_edges = 5,
                               .ordered_edges = 7,
                               .piece_bytes = 200,
                               .summed_rows = 2,
                               .reaped_reads = 1,
                               .call_bytes = 4096,
                               .fixed_files = 2,
                               .rows_bytes = 9000,
                               .will_need_bytes = 4096,
                               .edge_piece = 7,
                               .run_bytes = 4000,
                               .slab_bytes = 4000,
                               .segment_bytes = 64,
                               .part_bytes = 512,
                               .bucket_records = 17,
                               .slice_edges = 61,
                               .csc_numbers = 7,
                               .ranked_numbers = 17,
                               .counted_degrees = 2,
                               .searched_neighbors = 2,
                               .encoded_rows = 3};

}  // namespace

int main(int argc, char** argv) {
  using namespace gz::test;
  const char *wanted = "", *without = nullptr;
  bool names = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny-chunks") == 0) {
      gz::chunk_sizes = kTiny;
    } else if (std::strcmp(argv[i], "--names") == 0) {
      names = true;
    } else if (std::strcmp(argv[i], "--without") == 0 && i + 1 < argc) {
      without = argv[++i];
    } else {
      wanted = argv[i];
    }
  }
  for (const Test& test : tests()) {
    const bool is_left_out = without != nullptr && std::strstr(test.name, without) != nullptr;
    skipped += is_left_out;
    if (is_left_out || std::strstr(test.name, wanted) == nullptr) continue;
    if (names) {
      std::printf("RUN %s\n", test.name);
      std::fflush(stdout);
    }
    const long before = failed;
    try {
      test.run();
    } catch (const std::exception& error) {
      ++failed;
      std::printf("%s: %s\n", test.name, error.what());
    }
    if (failed != before) std::printf("FAILED %s\n", test.name);
  }
  std::printf("%zu tests on %s: %ld passed, %ld failed, %ld tests skipped\n", tests().size(),
              gz::system_name(), passed.load(), failed.load(), skipped);
  return failed == 0 ? 0 : 1;
}
