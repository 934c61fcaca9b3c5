// io/: files by their names, locked, in place or without a name; publishing a folder.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/errors.h"
#include "check.h"
#include "io/file.h"
#include "io/publish.h"
#include "scratch.h"
#include "storage/column.h"

using namespace gz;
using namespace gz::test;

TEST(file_errors_name_the_path) {
  const Scratch dir;
  CHECK_THROWS(OsError, "cannot open '" + (dir / "no") + "': No such file", File::open(dir / "no"));
  CHECK_THROWS(OsError, "Is a directory", File::open(dir / ""));
  const File held = File::lock(dir / "lock");
  CHECK_THROWS(OsError, "cannot lock '" + (dir / "lock"), File::lock(dir / "lock"));
}

TEST(a_file_knows_whether_it_is_in_place) {
  const Scratch dir;
  const File file = File::lock(dir / "lock");
  CHECK(file.is_in_place());
  std::filesystem::rename(dir / "lock", dir / "moved");
  CHECK(!file.is_in_place());
  File::create(dir / "lock");
  CHECK(!file.is_in_place());
}

TEST(temporary_files_are_gone_when_closed) {
  const Scratch dir;
  {
    File file = File::temporary(dir / "t");
    file.write_at("abc", 3, 0);
    char back[3];
    CHECK(file.read_at(back, 3, 0) == 3 && std::memcmp(back, "abc", 3) == 0);
  }
  CHECK(std::filesystem::is_empty(dir / ""));
  CHECK_THROWS(OsError, "No such file", File::temporary(dir / "no/t"));
}

void check_publishing(RenameInOneStep rename) {
  const Scratch dir;
  for (const char* name : {"new", "old", "newer"}) {
    std::filesystem::create_directory(dir / name);
    write_column(dir / (std::string(name) + "/x.gd"), 1, 1);
    File::create(dir / (std::string(name) + "/" + name));
  }
  CHECK_THROWS(OsError, "File exists", publish_directory(dir / "new", dir / "old", false, rename));
  CHECK(std::filesystem::exists(dir / "old/old") && std::filesystem::exists(dir / "new/new"));
  publish_directory(dir / "new", dir / "store", false, rename);
  CHECK(std::filesystem::exists(dir / "store/new") && !std::filesystem::exists(dir / "new"));
  publish_directory(dir / "newer", dir / "store", true, rename);
  CHECK(std::filesystem::exists(dir / "newer/new") && std::filesystem::exists(dir / "store/newer"));
  CHECK_THROWS(OsError, "cannot", publish_directory(dir / "no", dir / "store", true, rename));
  CHECK(std::filesystem::exists(dir / "store/newer"));
}

TEST(publishing_is_all_or_nothing) { check_publishing(rename_in_one_step); }

TEST(publishing_in_several_renames) {
  const RenameInOneStep refuses = [](const char*, const char*, Renaming) {
    errno = EINVAL;
    return -1;
  };
  check_publishing(refuses);
  // A store that a kill left aside is in the way, and stays.
  const Scratch dir;
  for (const char* name : {"new", "store", "store.replaced"}) {
    std::filesystem::create_directory(dir / name);
    File::create(dir / (std::string(name) + "/x"));
  }
  CHECK_THROWS(OsError, "cannot move",
               publish_directory(dir / "new", dir / "store", true, refuses));
  for (const char* name : {"new/x", "store/x", "store.replaced/x"}) {
    CHECK(std::filesystem::exists(dir / name));
  }
}
