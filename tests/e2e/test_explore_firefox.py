#!/usr/bin/env python3
"""usage: test_explore_firefox.py TFMC ROOT

The tests of test_explore_page.py in Debian's Firefox (firefox-esr), but for one that reads the log of Chromium's network and
one of a window as narrow as Firefox makes none. The last line is 'N passed, N failed'.
"""
import sys
import tempfile
import unittest

import marionette
import tally
import test_explore_page


class InFirefox(test_explore_page.Pages):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.driver = marionette.firefox(cls.folder.name)
        if not cls.driver:
            cls.folder.cleanup()
            raise unittest.SkipTest("no firefox-esr")
        cls.driver.set_window_size(1400, 1000)

    def resize(self, width):
        self.driver.set_window_size(width or 1400, 1000)

    test_nothing_is_asked_for = None
    test_a_narrow_window_folds_the_controls_and_says_what_is_cut = None


if __name__ == "__main__":
    sys.exit(tally.run())
