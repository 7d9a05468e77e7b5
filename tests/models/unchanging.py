"""The lists of keys of config.json that are said to change nothing: compiler/import/ignored_keys.def, and `ignore` in the
blocks of models/. mutate.py --part ignored asks transformers about each; unchanging.json keeps a change of each with which
transformers computed the same; test_unchanging.py makes it again.

An entry is a text: the key alone if it is for all families, "FAMILY KEY" if the block of models/FAMILY.tfm has it.

usage: unchanging.py LOG...: writes unchanging.json from logs of mutate.py, a row for each entry that has a change in one of
them. Entries that have none are named.
"""
import json
import pathlib
import re
import sys

BY_HAND = {"nomic_experts"}  # families whose folders transformers has no class for, and so cannot be asked
ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("unchanging.json")


def of_all():
    return re.findall(r'^IGNORED\("([^"]+)"\)', (ROOT / "compiler/import/ignored_keys.def").read_text(), re.M)


def of_families():
    """Of each file of models/: the types of its block, and the keys of its lists."""
    found = {}
    for path in sorted((ROOT / "models").glob("*.tfm")):
        head, block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", path.read_text(), re.M | re.S).groups()
        lists = re.findall(r"^  ignore ((?:.*,\n)*.*)$", block, re.M)
        found[path.stem] = re.findall(r'"([\w-]+)"', head), [k for text in lists for k in re.findall(r'"([^"]+)"', text)]
    return found


def entries():
    return [*of_all(), *(f"{family} {key}" for family, (_, keys) in of_families().items() if family not in BY_HAND for key in keys)]


def entries_of(family):
    """Those that count for a folder which that family computes."""
    return [*of_all(), *(f"{family} {key}" for key in of_families()[family][1])]


def place_of(entry, config):
    """Where the key stands or could: "generation" first for one of generation_config.json; in a folder that reads pictures too
    perhaps among the settings of its text. None: nowhere."""
    if " " not in entry:
        return [entry]
    path = entry.split(" ")[1].split(".")
    if path[0] == "generation":
        return path
    inside = config.get("text_config")
    if isinstance(inside, dict) and path[0] not in config and not path[0].endswith("_dict"):
        found = inside if len(path) == 1 else inside.get(path[0])
        return ["text_config", *path] if isinstance(found, dict) else None
    return path if len(path) == 1 or isinstance(config.get(path[0]), dict) else None


def place_in_files(path):
    """The file, and the path in it."""
    return ("generation_config.json", path[1:]) if path[0] == "generation" else ("config.json", path)


def main():
    rows = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for log in sys.argv[1:]:
        for line in pathlib.Path(log).read_text().splitlines():
            for entry, changes in json.loads(line).get("unchanged", {}).items():
                rows.setdefault(entry, changes[0])
    wanted = entries()
    rows = {e: rows[e] for e in wanted if e in rows}
    TABLE.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}\n")
    lacking = [e for e in wanted if e not in rows]
    print(f"{len(rows)} rows; {len(lacking)} entries have none: {lacking}")
    return bool(lacking)


if __name__ == "__main__":
    sys.exit(main())
