#!/usr/bin/env python3
"""usage: test.py TFMC [COUNT [WEIGHTS]]

Builds the C program (with dates.safetensors, or WEIGHTS), gives it COUNT written dates (2,000) of years that training never saw, and counts how many it
translates exactly; at least 99 % must be right. Then lines that it must refuse, and weights that are not there. Needs
Python alone. The last line is 'N passed, N failed'.
"""
import pathlib
import subprocess
import sys
import tempfile
import dates_data as data

NEEDED = 0.99
REFUSED = ["", "5 june 1984 !", "5 juin 1984 à midi", "x" * (data.LONGEST + 1), "1" * 5000]


def translated(program, lines):
    """Standard output and standard error as lists of lines."""
    run = subprocess.run([program], input="".join(f"{line}\n" for line in lines), cwd=program.parent,
                         capture_output=True, text=True, check=True)
    return run.stdout.splitlines(), run.stderr.splitlines()


def held_out(program, count):
    writer = data.Writer(data.TEST_SEED, held=True)
    pairs = [writer.pair() for _ in range(count)]
    found, messages = translated(program, [text for text, _ in pairs])
    wrong = [(text, date, answer) for (text, date), answer in zip(pairs, found) if date != answer]
    for text, date, answer in wrong[:10]:
        print(f"  {text!r} is {date}, not {answer}")
    right = len(found) - len(wrong)
    print(f"{right} of {count} dates of years held out ({100 * right / count:.2f} %)")
    return len(found) == count and not messages and right >= NEEDED * count


def refused(program):
    """Each bad line gets a message with its number and an empty answer; the lines between are translated."""
    good = "3rd of May 2001"
    found, messages = translated(program, [line for bad in REFUSED for line in (bad, good)])
    numbers = [int(message.split()[1].strip(",")) for message in messages]
    return found == ["", "2001-05-03"] * len(REFUSED) and numbers == [2 * i + 1 for i in range(len(REFUSED))]


def without_weights(program):
    run = subprocess.run([program, "nowhere.tfmw"], input="", capture_output=True, text=True)
    return run.returncode == 3 and "nowhere.tfmw" in run.stderr and run.stdout == ""


def main(tfmc, count=2000, *weights):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([pathlib.Path(__file__).with_name("build.sh"), tfmc, folder, *weights], check=True)
        program = pathlib.Path(folder, "dates")
        results = {"dates of years held out": held_out(program, int(count)), "lines that are no dates": refused(program),
                   "no weights": without_weights(program)}
    for name, passed in results.items():
        if not passed:
            print(f"FAIL {name}")
    failed = sum(not passed for passed in results.values())
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
