#!/usr/bin/env python3
import sys

import nilearn

print(nilearn.__version__, sys.argv)
