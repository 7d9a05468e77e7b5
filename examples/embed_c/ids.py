#!/usr/bin/env python3
"""usage: ids.py TOKENIZER

Lines of text in, lines of token ids out. TOKENIZER is the model's tokenizer.json. Needs the package tokenizers.
"""
import sys
from tokenizers import Tokenizer


def main(path):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    for line in sys.stdin:
        print(*tokenizer.encode(line.strip()).ids, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
