"""`python -m holdfast`: the `holdfast` command."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
