// The module: one init function per topic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace gz::python {
void init_errors(nb::module_& m);
void init_storage(nb::module_& m);
void init_ids(nb::module_& m);
void init_build(nb::module_& m);
void init_encode(nb::module_& m);
void init_sampling(nb::module_& m);
void init_gather(nb::module_& m);
void init_aggregate(nb::module_& m);
void init_pipeline(nb::module_& m);
void init_io(nb::module_& m);
}  // namespace gz::python

NB_MODULE(_core, m) {
  // A spawned DataLoader worker exits without collecting what its process object holds; the report
  // of that is noise to users.
  nb::set_leak_warnings(false);
  m.doc() =
      "The engine of pyg_graphzero: storage, CSC building, ids, sampling, gathering, batches.";
  gz::python::init_errors(m);
  gz::python::init_storage(m);
  gz::python::init_ids(m);
  gz::python::init_build(m);
  gz::python::init_encode(m);
  gz::python::init_sampling(m);
  gz::python::init_gather(m);
  gz::python::init_aggregate(m);
  gz::python::init_pipeline(m);
  gz::python::init_io(m);
}
