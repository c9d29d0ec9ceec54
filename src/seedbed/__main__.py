"""`python -m seedbed` is `seedbed`."""

from seedbed.cli import main

if __name__ == "__main__":
    main()
