#!/usr/bin/env python3
"""usage: test_unchanging.py TFMC CASES

Each entry of the lists of keys that change nothing has a row in unchanging.json: a change of it with which transformers
computed the same numbers (mutate.py --part ignored, unchanging.py). `tfmc import` writes the same model then. An entry
without a row fails, and a row without an entry.
"""
import json
import re
import shutil

import import_case
import mutations
import unchanging
from import_case import CASES, ImportCase


def body(text):
    """Without the lines that name the folder and the class, and dropouts that training is without; 1.0 is 1."""
    return re.sub(r"\b(\d+)\.0\b", r"\1", re.sub(r"# Training is without .*\n#\n", "", text.split("\n", 1)[1]))


class Unchanging(ImportCase):
    rows = json.loads(unchanging.TABLE.read_text())

    def test_each_entry_has_been_tried(self):
        self.assertEqual(list(self.rows), unchanging.entries())

    def take_from(self, name):
        """Of the tables of vectors, too, into an empty folder: theirs have modules."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        place = CASES if (CASES / f"{name}.json").exists() else CASES.parent / "tables"
        return self.take(name, place)

    def test_each_change_gives_the_same_model(self):
        """What is written in the folder's own model."""
        whole = {}
        for entry, (name, path, value) in sorted(self.rows.items(), key=lambda row: row[1][0]):
            with self.subTest(entry=entry, case=name, value=value):
                self.take_from(name)
                if name not in whole:
                    whole = {name: body(self.tfmc(self.folder, "--strict").stdout)}
                file, inside = unchanging.place_in_files(path)
                old = self.case["files"].get(file, {})
                changed = mutations.changed_json(old, inside, value)
                self.assertNotEqual(json.dumps(changed), json.dumps(old))
                (self.folder / file).write_text(json.dumps(changed))
                self.assertEqual(body(self.tfmc(self.folder).stdout), whole[name])


if __name__ == "__main__":
    import_case.main()
