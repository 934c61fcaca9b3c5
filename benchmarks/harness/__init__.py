"""What the scripts of this folder share: records, turns, children under a limit, peers, reports."""
