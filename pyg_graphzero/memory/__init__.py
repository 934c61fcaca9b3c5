"""What loaders keep in memory, and what they read from the disk and when."""
