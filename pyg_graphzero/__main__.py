"""``python -m pyg_graphzero``: the command line without the script on the path."""

from pyg_graphzero_cli import main

main()
