#!/usr/bin/env python3
"""The tests of tfmc-serve: usage: run_serve.py [NAME...]. The package tfmc and what tfmc-serve requires must be
importable, and the compiler must be found, as for python/tests/run.py. The last line is 'N passed, N failed'.
"""
import logging
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from run import main  # noqa: E402

if __name__ == "__main__":
    for name in ("asyncio",):  # about requests that are broken on purpose, and a machine that has other work
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.exit(main(sys.argv[1:], HERE))
