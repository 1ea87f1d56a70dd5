"""`python -m linnet`: the command line."""

from linnet.cli import main

if __name__ == "__main__":
    main()
