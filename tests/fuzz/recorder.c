// Preloaded into a process, writes down what it does to the files below a directory, in order: what
// is created, written (with the bytes), synced, renamed, removed. tests/support/power_loss.py reads it.
//
//   RECORD_ROOT  the directory
//   RECORD_LOG   where the record goes; each event is a line, the bytes of a write follow theirs
//
// An open of /recorder/NAME, which there is not, puts a mark into the record.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static const char* root;
static size_t root_length;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char* const path = getenv("RECORD_LOG");
  root = getenv("RECORD_ROOT");
  if (path == NULL || root == NULL) return;
  root_length = strlen(root);
  log_fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static int below_root(const char* path) {
  return log_fd >= 0 && strncmp(path, root, root_length) == 0 &&
         (path[root_length] == '/' || path[root_length] == '\0');
}

// The path that a call names, absolute; 0 if it is none of ours.
static int resolve(int at, const char* path, char* out) {
  if (log_fd < 0 || path == NULL) return 0;
  if (path[0] == '/') {
    snprintf(out, PATH_MAX, "%s", path);
  } else {
    char link[64], base[PATH_MAX];
    snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
    const ssize_t n = readlink(link, base, sizeof base - 1);
    if (n < 0) return 0;
    base[n] = '\0';
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
  }
  return below_root(out);
}

static int path_of(int fd, char* out) {
  char link[64];
  if (log_fd < 0 || fd == log_fd) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, out, PATH_MAX - 1);
  if (n < 0) return 0;
  out[n] = '\0';
  return below_root(out);
}

static void put(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = REAL(write)(log_fd, bytes, size);
    if (n < 0) _exit(99);
    bytes += n;
    size -= (size_t)n;
  }
}

static void event(const char* what, unsigned long long ino, long long offset, long long size,
                  const char* path, const char* other) {
  char line[2 * PATH_MAX + 128];
  const int n = snprintf(line, sizeof line, "%s\t%llu\t%lld\t%lld\t%s\t%s\n", what, ino, offset,
                         size, path, other);
  put(line, (size_t)n);
}

static unsigned long long inode_of(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

static void wrote(int fd, const void* bytes, ssize_t size, off_t offset) {
  char path[PATH_MAX];
  if (size <= 0 || !path_of(fd, path)) return;
  const int error = errno;
  event("write", inode_of(fd), offset, size, path, "");
  put(bytes, (size_t)size);
  errno = error;
}

// Calls take turns, so that the record has the order in which they happened.
#define TURN(type, call, ...)        \
  pthread_mutex_lock(&turn);         \
  const type result = (call);        \
  {                                  \
    const int error_ = errno;        \
    __VA_ARGS__;                     \
    errno = error_;                  \
  }                                  \
  pthread_mutex_unlock(&turn);       \
  return result

static int opened(int at, const char* name, int flags, mode_t mode) {
  char path[PATH_MAX];
  if (log_fd >= 0 && strncmp(name, "/recorder/", 10) == 0) {
    event("mark", 0, 0, 0, name + 10, "");
  }
  if (!resolve(at, name, path)) return REAL(openat)(at, name, flags, mode);
  struct stat found;
  const int is_new = (flags & O_CREAT) != 0 && stat(path, &found) != 0;
  TURN(int, REAL(openat)(at, name, flags, mode), {
    if (result >= 0 && is_new) event("create", inode_of(result), 0, 0, path, "");
    if (result >= 0 && !is_new && (flags & O_TRUNC) != 0) {
      event("resize", inode_of(result), 0, 0, path, "");
    }
  });
}

#define MODE(flags, mode)                                \
  mode_t mode = 0;                                       \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                        \
    va_start(rest, flags);                               \
    mode = va_arg(rest, mode_t);                         \
    va_end(rest);                                        \
  }

int open(const char* name, int flags, ...) {
  MODE(flags, mode)
  return opened(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  MODE(flags, mode)
  return opened(AT_FDCWD, name, flags | O_LARGEFILE, mode);
}
int openat(int at, const char* name, int flags, ...) {
  MODE(flags, mode)
  return opened(at, name, flags, mode);
}
int openat64(int at, const char* name, int flags, ...) {
  MODE(flags, mode)
  return opened(at, name, flags | O_LARGEFILE, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(write)(fd, bytes, size);
  struct stat found;
  pthread_mutex_lock(&turn);
  const int appends = (fcntl(fd, F_GETFL) & O_APPEND) != 0;
  const off_t at = appends && fstat(fd, &found) == 0 ? found.st_size : lseek(fd, 0, SEEK_CUR);
  const ssize_t result = REAL(write)(fd, bytes, size);
  wrote(fd, bytes, result, at);
  pthread_mutex_unlock(&turn);
  return result;
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(writev)(fd, parts, count);
  ssize_t done = 0;  // one by one, which is a writev() that was interrupted
  for (int i = 0; i < count; ++i) {
    const ssize_t n = write(fd, parts[i].iov_base, parts[i].iov_len);
    if (n < 0) return done > 0 ? done : n;
    done += n;
    if ((size_t)n < parts[i].iov_len) break;
  }
  return done;
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  TURN(ssize_t, REAL(pwrite)(fd, bytes, size, at), wrote(fd, bytes, result, at));
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  TURN(ssize_t, REAL(pwrite64)(fd, bytes, size, at), wrote(fd, bytes, result, at));
}

// Whoever copies within the kernel falls back to reading and writing.
ssize_t sendfile(int to, int from, off_t* at, size_t size) {
  (void)to, (void)from, (void)at, (void)size;
  errno = ENOSYS;
  return -1;
}
ssize_t sendfile64(int to, int from, off64_t* at, size_t size) {
  (void)to, (void)from, (void)at, (void)size;
  errno = ENOSYS;
  return -1;
}
ssize_t copy_file_range(int from, off64_t* at, int to, off64_t* into, size_t size, unsigned flags) {
  (void)to, (void)from, (void)at, (void)into, (void)size, (void)flags;
  errno = ENOSYS;
  return -1;
}

#define BY_DESCRIPTOR(what, fd, size)                                       \
  char path[PATH_MAX];                                                      \
  if (result == 0 && path_of(fd, path)) event(what, inode_of(fd), 0, size, path, "")

int fsync(int fd) {
  TURN(int, REAL(fsync)(fd), BY_DESCRIPTOR("sync", fd, 0));
}
int fdatasync(int fd) {
  TURN(int, REAL(fdatasync)(fd), BY_DESCRIPTOR("sync", fd, 0));
}
int ftruncate(int fd, off_t size) {
  TURN(int, REAL(ftruncate)(fd, size), BY_DESCRIPTOR("resize", fd, size));
}
int ftruncate64(int fd, off64_t size) {
  TURN(int, REAL(ftruncate64)(fd, size), BY_DESCRIPTOR("resize", fd, size));
}

#define BY_NAME(what, at, name)                                             \
  char path[PATH_MAX];                                                      \
  if (result == 0 && resolve(at, name, path)) event(what, 0, 0, 0, path, "")

int mkdir(const char* name, mode_t mode) {
  TURN(int, REAL(mkdir)(name, mode), BY_NAME("mkdir", AT_FDCWD, name));
}
int mkdirat(int at, const char* name, mode_t mode) {
  TURN(int, REAL(mkdirat)(at, name, mode), BY_NAME("mkdir", at, name));
}
int unlink(const char* name) {
  TURN(int, REAL(unlink)(name), BY_NAME("unlink", AT_FDCWD, name));
}
int rmdir(const char* name) {
  TURN(int, REAL(rmdir)(name), BY_NAME("unlink", AT_FDCWD, name));
}
int unlinkat(int at, const char* name, int flags) {
  TURN(int, REAL(unlinkat)(at, name, flags), BY_NAME("unlink", at, name));
}

static void renamed(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  char path[PATH_MAX], other[PATH_MAX];
  if (!resolve(from_at, from, path) || !resolve(to_at, to, other)) return;
  event((flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", 0, 0, 0, path, other);
}
int rename(const char* from, const char* to) {
  TURN(int, REAL(rename)(from, to), {
    if (result == 0) renamed(AT_FDCWD, from, AT_FDCWD, to, 0);
  });
}
int renameat(int from_at, const char* from, int to_at, const char* to) {
  TURN(int, REAL(renameat)(from_at, from, to_at, to), {
    if (result == 0) renamed(from_at, from, to_at, to, 0);
  });
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  TURN(int, REAL(renameat2)(from_at, from, to_at, to, flags), {
    if (result == 0) renamed(from_at, from, to_at, to, flags);
  });
}
