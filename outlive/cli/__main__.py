"""``python -m outlive.cli``: the command line where its script is not on the path."""

from outlive.cli.main import main

main()
