// The engine's errors as the Python exceptions users catch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "base/errors.h"

namespace nb = nanobind;

namespace gz::python {

void init_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const OsError& e) {
      // OSError(errno, text, filename) picks FileNotFoundError, PermissionError … by itself.
      const std::string text = e.operation() + ": " + std::strerror(e.code());
      const nb::object made = nb::handle(PyExc_OSError)(e.code(), text, e.path());
      // Under its own class: Python 3.10 looks at nothing else when it comes to an `except`.
      PyErr_SetObject(made.type().ptr(), made.ptr());
    } catch (const FormatError& e) {
      const nb::object cls = nb::module_::import_("pyg_graphzero.errors").attr("FormatError");
      const nb::object args = nb::make_tuple(e.what(), e.path(), e.field());
      PyErr_SetObject(cls.ptr(), args.ptr());
    }
  });
}

}  // namespace gz::python
