#!/usr/bin/env python3
"""usage: test_theirs.py

What is kept of a refusal of transformers holds no model: a config without the sizes of its part for pictures makes one of gigabytes,
and after two of them mutate.py had no memory left for any change behind. Needs torch and transformers. The last line is 'N passed, N failed'.
"""
import gc
import sys
import unittest
import unittest.mock
import weakref

try:
    import theirs
except ImportError as error:
    print(f"not run: {error}")
    sys.exit(77)


class Model:
    """Stands for a model that is alive while a reference of `seen` is."""
    def __init__(self, seen):
        seen.append(weakref.ref(self))


class Refusals(unittest.TestCase):
    def setUp(self):
        gc.disable()  # a cycle would be found some time; memory is gone before that
        self.addCleanup(gc.enable)
        self.seen = []

    def refused(self, call, words):
        """No model is left. assertRaises would empty the frames that hold one."""
        try:
            call()
        except theirs.Declined as e:
            said = str(e)
        self.assertEqual(said, words)
        self.assertEqual([ref() for ref in self.seen], [None])

    def test_of_what_a_model_lacks(self):
        def make():
            model = Model(self.seen)
            raise theirs.Declined(f"missing: {model is not None}")
        kept = theirs.Kept(None, {})
        for _ in range(2):  # asked, and found
            self.refused(lambda: kept.take(["key"], make), "missing: True")

    def test_of_a_model_that_does_not_load(self):
        class Kind:
            @staticmethod
            def from_pretrained(*args, **named):
                model = Model(self.seen)
                raise ValueError(f"no such size: {model is not None}")
        with unittest.mock.patch.object(theirs, "classes", lambda config, writes: [Kind]):
            self.refused(lambda: theirs.Kept(None, {}).take(["key"], lambda: theirs.loaded(None, {}, None, "eager")),
                         "ValueError: no such size: True")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(bad != 0)
