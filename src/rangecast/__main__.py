"""`python -m rangecast` is the command `rangecast`."""

from rangecast.cli.app import main

main()
