"""A store on disk: its schema, its files, and everything that reads or changes them."""
