"""Build the site into a folder: python -m tools.site FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site.build import build

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    pages = build(folder)
    print(f"{len(pages)} pages: {folder / 'index.html'}")
