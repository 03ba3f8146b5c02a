"""``python -m tierscope`` is the command line."""

import sys

from tierscope.cli import main

sys.exit(main())
