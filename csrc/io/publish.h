// Making a finished directory appear all at once: sync everything, then one rename.
#pragma once

#include <string>

namespace gz {

// Syncs a directory entry list to the device.
void sync_directory(const std::string& path);
// Syncs the directory that `path` is in.
void sync_folder_of(const std::string& path);

bool exists(const std::string& path);

enum class Renaming {
  kNew,       // an existing `to` is EEXIST
  kExchange,  // `from` and `to`, both of which exist
};

// Renames at once: 0, or -1 and errno; ENOSYS, EINVAL or ENOTSUP where that cannot be. A parameter
// so that tests can be a filesystem that cannot.
using RenameInOneStep = int (*)(const char* from, const char* to, Renaming how);
int rename_in_one_step(const char* from, const char* to, Renaming how);

// rename(2) of a directory where there is nothing at `to`: 0, or -1 and errno.
int rename_plainly(const char* from, const char* to);

// Renames directory `from` to `to`. With `replace`, an existing `to` is exchanged in one step and
// ends up at `from`, for the caller to delete; open readers of it keep their files. Without it, an
// existing `to` raises OsError(EEXIST). Where the filesystem cannot exchange (NFS), `to` is absent
// for an instant, and a kill then leaves the old one as `to`.replaced. An error leaves both as they
// were (there: or the new one in place, unsynced). REQUIRES: the same filesystem, all files in
// `from` synced, and that no other process replaces or changes an existing `to` meanwhile (hold its
// lock).
void publish_directory(const std::string& from, const std::string& to, bool replace,
                       RenameInOneStep rename = rename_in_one_step);

}  // namespace gz
