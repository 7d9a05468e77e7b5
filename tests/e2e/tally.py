"""What files of unittest cases share: their end, which runs them and says how many passed as scripts/check.sh counts it,
and a folder of compiled code for tests that run few models many times."""
import contextlib
import os
import tempfile
import unittest
import unittest.mock


def run(argv=None, verbosity=0):
    """Runs the cases of the main module and prints why some were skipped and 'N passed, N failed'. True if one failed.

    A case of which several subtests fail has failed once; one that was skipped has not passed.
    """
    result = unittest.main(argv=argv, exit=False, verbosity=verbosity).result
    failed = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors})
    not_run = len(result.skipped)
    for case, why in result.skipped:
        print(f"not run: {case.id().rpartition('.')[2]}: {why}")
    passed = result.testsRun - failed - not_run
    print(f"{passed} passed, {failed} failed" + (f", {not_run} not run" if not_run else ""))
    return failed != 0


@contextlib.contextmanager
def compiled_once():
    """Meanwhile what compiles a text that was compiled before, with the same options, finds the code of then; in the folder
    of `make check`, if there is one."""
    if os.environ.get("TFM_CACHE_DIR"):
        yield
        return
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TFM_CACHE_DIR=folder):
        yield
