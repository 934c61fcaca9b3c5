"""A store's directory as files: their names, the documents among them, and who may change them."""
