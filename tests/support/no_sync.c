/* Preloaded, it has programs wait for no disk. fdatasync() stays: what is not written yet cannot be
 * dropped from the page cache either. */
int fsync(int fd) { return fd < 0 ? -1 : 0; }
int sync_file_range(int fd, long long offset, long long size, unsigned flags) {
  (void)offset, (void)size, (void)flags;
  return fd < 0 ? -1 : 0;
}
