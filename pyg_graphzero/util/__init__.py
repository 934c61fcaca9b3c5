"""The ground floor: the operating system, arguments, files and their locks."""
