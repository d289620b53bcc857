"""`python -m rangecast` is the command `rangecast`."""

from rangecast.cli import main

main()
