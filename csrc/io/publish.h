// Making a finished directory appear all at once: sync everything, then one rename.
#pragma once

#include <string>

namespace gz {

// Syncs a directory entry list to the device.
void sync_directory(const std::string& path);

// Renames directory `from` to `to`. With `replace`, an existing `to` is exchanged in one step and
// ends up at `from`, for the caller to delete; open readers of it keep their files. Without it, an
// existing `to` raises OsError(EEXIST). REQUIRES: the same filesystem, all files in `from` synced.
void publish_directory(const std::string& from, const std::string& to, bool replace);

}  // namespace gz
