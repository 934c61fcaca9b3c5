"""What makes a store faster: rows in a better order, and advice."""
