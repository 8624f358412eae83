"""``python -m placekit``: the command line, where the script ``placekit`` is not on the path."""

from placekit.cli.main import main

if __name__ == "__main__":
    main()
