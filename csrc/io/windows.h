// For x_windows.cpp alone: errors, paths, handles.
#pragma once

#include <string>

#include "io/file.h"

namespace gz::windows {

// The errno number of an error of the system's; its last one.
int errno_of(unsigned long error) noexcept;
int last_errno() noexcept;

// A path as the system takes it: from UTF-8, and of any length.
std::wstring wide(const std::string& path);

inline void* handle_of(const File& file) noexcept { return reinterpret_cast<void*>(file.handle()); }

}  // namespace gz::windows
