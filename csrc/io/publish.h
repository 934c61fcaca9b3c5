// Making a finished directory appear all at once: sync everything, then one rename.
#pragma once

#include <string>

namespace gz {

// Syncs a directory entry list to the device.
void sync_directory(const std::string& path);

// Renames in one step, with the flags of renameat2(2): 0, or -1 and errno. A parameter so that
// tests can be a filesystem that knows no flags.
using RenameWithFlags = int (*)(const char* from, const char* to, unsigned flags);
int rename_with_flags(const char* from, const char* to, unsigned flags);

// Renames directory `from` to `to`. With `replace`, an existing `to` is exchanged in one step and
// ends up at `from`, for the caller to delete; open readers of it keep their files. Without it, an
// existing `to` raises OsError(EEXIST). Where the filesystem cannot exchange (NFS), `to` is absent
// for an instant, and a kill then leaves the old one as `to`.replaced. An error leaves both as they
// were (there: or the new one in place, unsynced). REQUIRES: the same filesystem, all files in
// `from` synced, and that no other process replaces or changes an existing `to` meanwhile (hold its
// lock).
void publish_directory(const std::string& from, const std::string& to, bool replace,
                       RenameWithFlags rename = rename_with_flags);

}  // namespace gz
