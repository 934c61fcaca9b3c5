// The module: one init function per topic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace gz::python {
using Init = void(nb::module_&);
Init init_errors, init_storage, init_ids, init_build, init_encode, init_sampling, init_gather,
    init_aggregate, init_pipeline, init_io;
}  // namespace gz::python

NB_MODULE(_core, m) {
  // A spawned DataLoader worker exits without collecting what its process object holds; the report
  // of that is noise to users.
  nb::set_leak_warnings(false);
  m.doc() =
      "The engine of pyg_graphzero: storage, CSC building, ids, sampling, gathering, batches.";
  using namespace gz::python;
  for (Init* const init : {init_errors, init_storage, init_ids, init_build, init_encode,
                           init_sampling, init_gather, init_aggregate, init_pipeline, init_io}) {
    init(m);
  }
}
