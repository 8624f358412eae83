"""The command line: the only place that parses arguments, prints and exits. One module per command.

What is wrong in an option or a file raises a `PlacekitError` that names it, from which ``main`` makes one line and exit
code 2; docstrings do not repeat that.
"""
