"""Memory of loaders: files and rows that they keep in it, and reads from the disk by its plan."""
