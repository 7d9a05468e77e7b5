#!/usr/bin/env python3
"""The tests of the Python package: usage: run.py [NAME...]. The package must be importable (PYTHONPATH=BUILD/python, or
installed) and find the compiler (TFM_COMPILER, or installed). Needs numpy; what needs torch is left out without it. The
last line is 'N passed, N failed', with ', N not run' if some were left out.
"""
import pathlib
import signal
import sys
import unittest


class Result(unittest.TextTestResult):
    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1
        print(f"ok {test.id()}", flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"not run: {test.id()} ({reason})", flush=True)


def main(names, folder=pathlib.Path(__file__).resolve().parent):
    sys.path.insert(0, str(folder))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what runs behind: tests interrupt themselves
        signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.discover(str(folder))
    result = unittest.TextTestRunner(sys.stdout, resultclass=Result, verbosity=0).run(suite)
    bad = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.passed} passed, {bad} failed" + (f", {skipped} not run" if skipped else ""))
    return 1 if bad or not result.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
