#!/usr/bin/env python3
"""usage: test_unchanging.py TFMC CASES

Each entry of the lists of keys that change nothing has a row in unchanging.json: a change of it with which transformers
computed the same numbers (mutate.py --part ignored, unchanging.py). `tfmc import` writes the same model then. An entry
without a row fails, but for those of OPEN, and a row without an entry.
"""
import json
import re

import import_case
import mutations
import unchanging
from import_case import CASES, ImportCase


# Entries without a row: no change of them is known with which transformers computed the same. Shorter is better.
OPEN = ["model_type", "quantization_config", "clip logit_scale_init_value", "clip text_config_dict", "clip vision_config_dict",
        "clip vision_config.projection_dim", "mpt attn_config.attn_pdrop", "nemotron_h mamba_dt_limit", "static apply_pca",
        "static apply_zipf", "static sif_coefficient", "static hidden_dim", "static seq_length", "static tokenizer_name",
        "static embedding_dtype", "static vocabulary_quantization", "static base_model_name", "static language",
        "static normalize", "xlm_roberta_xl pad_token_id"]


def body(text):
    """Without the line that names the folder and the class; 1.0 is 1."""
    return re.sub(r"\b(\d+)\.0\b", r"\1", text.split("\n", 1)[1])


class Unchanging(ImportCase):
    rows = json.loads(unchanging.TABLE.read_text())

    def test_each_entry_has_been_tried(self):
        self.assertEqual(list(self.rows), [e for e in unchanging.entries() if e not in OPEN])
        self.assertEqual([e for e in unchanging.entries() if e in OPEN], OPEN)

    def take_from(self, name):
        """Of the tables of vectors, too."""
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
