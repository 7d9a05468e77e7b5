"""The log of mutate.py: a line for each case that ended, so that a run over all cases can be stopped and taken up again.

A line is a JSON object: the case, the time, the binary and the cases' own bytes (the begin of a hash), the options that
decide which changes are made, the counts, what is wrong, and changes of keys that are said to change nothing and did. A case is found in the log if all of these are the same.
"""
import collections
import hashlib
import json
import time

COLUMNS = [("equal", "right"), ("both refuse", "refused by both"), ("refused", "refused by us"), ("theirs refuses", "transformers refuses"),
           ("tower", "tower"), ("silent", "silent"), ("crash", "crash"), ("no answer", "without an answer of transformers")]


def short_hash(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


class Log:
    def __init__(self, args):
        """Without args.log nothing is found and nothing written but the summary."""
        self.file, self.lines = args.log, {}
        self.basis = None
        if self.file:
            options = dict(part=args.part, quick=args.quick, thin=args.thin, like=args.like)
            self.basis = dict(binary=short_hash(type(args.log)(args.tfmc)), options=options)
            for line in self.file.read_text().splitlines() if self.file.exists() else ():
                with_case = json.loads(line)
                if all(with_case[k] == v for k, v in self.basis.items()):
                    self.lines[with_case["case"]] = with_case
        self.found, self.all = {}, []

    def find(self, path):
        """The counts, faults and unchanged keys of a case that ran, or None."""
        line = self.lines.get(path.stem)
        if not line or line["bytes"] != short_hash(path):
            return None
        self.found[path.stem] = True
        return line["counts"], line["faults"], line["unchanged"]

    def add(self, path, counts, faults, unchanged):
        self.all.append((path.stem, counts, faults))
        if not self.file or path.stem in self.found:
            return
        line = dict(case=path.stem, time=time.strftime("%F %T"), bytes=short_hash(path), **self.basis, counts=counts, faults=faults, unchanged=unchanged)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def print_summary(self):
        """The cases that have something wrong, and the sums. In a quick run 'refused by us' has those that both refuse, too."""
        sums = collections.Counter()
        for name, counts, faults in self.all:
            sums.update(counts)
            for fault in faults:
                print(f"FAIL  {name}: {fault}")
        changes = sum(sums[k] for k, _ in COLUMNS)
        print(f"{len(self.all)} cases, {changes} changes: " + ", ".join(f"{sums[k]} {title}" for k, title in COLUMNS))
