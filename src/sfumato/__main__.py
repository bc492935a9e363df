"""`python -m sfumato`: the command line, where its name is not on the path."""

import sys

from sfumato.app.command_line import main

if __name__ == "__main__":
    sys.exit(main())
