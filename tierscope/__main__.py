"""``python -m tierscope`` is the command line."""

import sys


def main() -> int:
    """Run the command line, stopped in one line also while it is being imported, and return its exit code."""
    try:
        from tierscope import cli
    except KeyboardInterrupt:
        sys.stderr.write("tierscope: stopped by you\n")
        return 3
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
