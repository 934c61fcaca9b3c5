// Preloaded into a process, writes down what it reads from the files below a directory with
// pread(): a line "offset<TAB>length<TAB>path" for each. reads.py reads the record.
//
//   READS_ROOT  the directory
//   READS_LOG   where the record goes
//   READS_RSS   kilobytes: the figure that /proc/self/status gives for memory of the process's own,
//               so that a budget of N bytes leaves the same bytes to a store in every run
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char* root;
static size_t root_length;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void refused(void) {
  fputs("reads.c: cannot write its record\n", stderr);
  _exit(99);
}

__attribute__((constructor)) static void begin(void) {
  const char* const path = getenv("READS_LOG");
  root = getenv("READS_ROOT");
  if (path == NULL || root == NULL) return;
  root_length = strlen(root);
  log_fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_fd < 0) refused();
}

static void note(int fd, size_t size, long long at) {
  char link[64], path[PATH_MAX], line[PATH_MAX + 64];
  if (log_fd < 0) return;
  const int error = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n > 0) path[n] = '\0';
  if (n > 0 && strncmp(path, root, root_length) == 0 && path[root_length] == '/') {
    const int length =
        snprintf(line, sizeof line, "%lld\t%zu\t%s\n", at, size, path + root_length + 1);
    // One write: O_APPEND keeps the lines of several threads whole.
    if (write(log_fd, line, (size_t)length) != length) refused();
  }
  errno = error;
}

ssize_t pread(int fd, void* to, size_t size, off_t at) {
  note(fd, size, at);
  return REAL(pread)(fd, to, size, at);
}
ssize_t pread64(int fd, void* to, size_t size, off64_t at) {
  note(fd, size, at);
  return REAL(pread64)(fd, to, size, at);
}

static int is_status(const char* name) {
  return log_fd >= 0 && strcmp(name, "/proc/self/status") == 0 && getenv("READS_RSS") != NULL;
}

static int status(void) {
  char text[128];
  const int fd = memfd_create("status", MFD_CLOEXEC);
  const int n = snprintf(text, sizeof text, "Name:\tx\nRssAnon:\t%s kB\nRssFile:\t0 kB\n",
                         getenv("READS_RSS"));
  if (fd < 0 || write(fd, text, (size_t)n) != n || lseek(fd, 0, SEEK_SET) != 0) refused();
  return fd;
}

#define OPENED(call)                                                \
  mode_t mode = 0;                                                  \
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                   \
    va_start(rest, flags);                                          \
    mode = va_arg(rest, mode_t);                                    \
    va_end(rest);                                                   \
  }                                                                 \
  return is_status(name) ? status() : call

int open(const char* name, int flags, ...) { OPENED(REAL(open)(name, flags, mode)); }
int open64(const char* name, int flags, ...) { OPENED(REAL(open64)(name, flags, mode)); }
