// A library for LD_PRELOAD that makes the n-th call which changes a directory tree fail, or kills
// the process before it. tests/fuzz/syscalls.py arms it by ctypes and says what must hold
// afterwards.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

enum class Takes { kSpace, kNothing };  // of the disk

char root[PATH_MAX];
std::atomic<bool> armed{false};
std::atomic<long> calls{0};
long strike_at = 0;    // 0: only count
int strike_error = 0;  // 0: SIGKILL
bool stays_full = false;
char struck[64 + PATH_MAX];

bool is_below_root(const char* path) { return strncmp(path, root, strlen(root)) == 0; }

// Whether this call is to fail; errno says why.
bool strikes(const char* call, const char* path, Takes takes) {
  if (!armed || !is_below_root(path)) return false;
  const long number = ++calls;
  const bool again = stays_full && takes == Takes::kSpace && strike_at > 0 && number > strike_at;
  if (number != strike_at && !again) return false;
  if (number == strike_at) snprintf(struck, sizeof struck, "%s %s", call, path);
  if (strike_error == 0) {
    kill(getpid(), SIGKILL);
    pause();
  }
  errno = strike_error;
  return true;
}

bool strikes_at(const char* call, int directory, const char* name, Takes takes) {
  if (!armed) return false;
  char path[2 * PATH_MAX];
  if (name[0] == '/' || directory == AT_FDCWD) return strikes(call, name, takes);
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const ssize_t size = readlink(link, path, PATH_MAX);
  if (size < 0) return false;
  snprintf(path + size, sizeof path - static_cast<size_t>(size), "/%s", name);
  return strikes(call, path, takes);
}

bool strikes_file(const char* call, int fd, Takes takes) { return strikes_at(call, fd, "", takes); }

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Opened to be written to; and directories, which are opened to be synced or emptied.
bool is_change(int flags) {
  return (flags & (O_CREAT | O_TRUNC | O_DIRECTORY)) != 0 || (flags & O_ACCMODE) != O_RDONLY;
}

Takes taken_by(int flags) {
  const bool is_new = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return is_new ? Takes::kSpace : Takes::kNothing;
}

}  // namespace

extern "C" {

// Strikes at call `at` (from 1) that changes something below `path`, with `error`; 0 kills.
void faults_arm(const char* path, long at, int error, int full) {
  snprintf(root, sizeof root, "%s/", path);
  strike_at = at;
  strike_error = error;
  stays_full = full != 0;
  struck[0] = 0;
  calls = 0;
  armed = true;
}

// Ends it; how many such calls there were.
long faults_disarm() {
  armed = false;
  return calls;
}

// The call that was struck, and its path.
const char* faults_struck() { return struck; }

#define OPEN(name)                                                             \
  int name(const char* path, int flags, ...) {                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    const mode_t mode = va_arg(rest, mode_t);                                  \
    va_end(rest);                                                              \
    static const auto next = real<int (*)(const char*, int, ...)>(#name);      \
    if (is_change(flags) && strikes("open", path, taken_by(flags))) return -1; \
    return next(path, flags, mode);                                            \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                           \
  int name(int directory, const char* path, int flags, ...) {                                  \
    va_list rest;                                                                              \
    va_start(rest, flags);                                                                     \
    const mode_t mode = va_arg(rest, mode_t);                                                  \
    va_end(rest);                                                                              \
    static const auto next = real<int (*)(int, const char*, int, ...)>(#name);                 \
    if (is_change(flags) && strikes_at("openat", directory, path, taken_by(flags))) return -1; \
    return next(directory, path, flags, mode);                                                 \
  }
OPENAT(openat)
OPENAT(openat64)

#define CALL(type, name, is_struck, parameters, arguments)    \
  type name parameters {                                      \
    static const auto next = real<type(*) parameters>(#name); \
    return is_struck ? -1 : next arguments;                   \
  }
#define BY_FD(type, name, takes, parameters, arguments) \
  CALL(type, name, strikes_file(#name, fd, Takes::takes), parameters, arguments)
#define BY_PATH(name, takes, parameters, arguments) \
  CALL(int, name, strikes(#name, path, Takes::takes), parameters, arguments)

BY_FD(ssize_t, write, kSpace, (int fd, const void* data, size_t size), (fd, data, size))
BY_FD(ssize_t, pwrite, kSpace, (int fd, const void* data, size_t size, off_t at),
      (fd, data, size, at))
BY_FD(ssize_t, pwrite64, kSpace, (int fd, const void* data, size_t size, off64_t at),
      (fd, data, size, at))
BY_FD(ssize_t, sendfile64, kSpace, (int fd, int from, off64_t* at, size_t size),
      (fd, from, at, size))
BY_FD(int, ftruncate, kSpace, (int fd, off_t size), (fd, size))
BY_FD(int, ftruncate64, kSpace, (int fd, off64_t size), (fd, size))
BY_FD(int, fsync, kNothing, (int fd), (fd))
BY_FD(int, fdatasync, kNothing, (int fd), (fd))
BY_PATH(rename, kNothing, (const char* from, const char* path), (from, path))
BY_PATH(link, kSpace, (const char* from, const char* path), (from, path))
BY_PATH(unlink, kNothing, (const char* path), (path))
BY_PATH(rmdir, kNothing, (const char* path), (path))
BY_PATH(mkdir, kSpace, (const char* path, mode_t mode), (path, mode))
CALL(int, renameat2, strikes_at("renameat2", to_at, to, Takes::kNothing),
     (int from_at, const char* from, int to_at, const char* to, unsigned flags),
     (from_at, from, to_at, to, flags))
CALL(int, unlinkat, strikes_at("unlinkat", directory, path, Takes::kNothing),
     (int directory, const char* path, int flags), (directory, path, flags))

}  // extern "C"
