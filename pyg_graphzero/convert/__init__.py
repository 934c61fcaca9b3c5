def convert(*a, **k): raise RuntimeError
