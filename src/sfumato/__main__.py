"""Run the command line as `python -m sfumato`, for systems where `sfumato` is not on the path."""

import sys

from sfumato.app.command_line import main

if __name__ == "__main__":
    sys.exit(main())
