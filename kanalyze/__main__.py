"""``python -m kanalyze``."""

from kanalyze.cli import main

if __name__ == "__main__":
    main()
