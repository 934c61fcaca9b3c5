"""A store in parts, for machines of which each has one."""
