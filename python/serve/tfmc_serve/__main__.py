"""python -m tfmc_serve"""
import sys

from .command import main

sys.exit(main())
