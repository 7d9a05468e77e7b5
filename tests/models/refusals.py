"""What the message of a refused folder must say: why, the family, and what to do next, in four lines at most."""
import re

MOST_LINES = 4


def fault_of(stderr):
    """None, or what the messages of an import that was refused lack. With several errors each has its own lines, and the family
    stands behind the last."""
    lines = stderr.strip().split("\n")
    errors = [i for i, line in enumerate(lines) if re.search(r": error: ", line)]
    if not errors:
        return "there is no error"
    last = [line for line in lines if re.match(r"models/[\w/]+\.tfm:\d+:\d+: note: this is the family of the folder; ", line)]
    if len(last) != 1 or "--family FILE" not in last[0] or "tfmc.from_torch" not in last[0]:
        return f"{len(last)} lines say which family it is, and what to do next"
    for begin, end in zip(errors, [*errors[1:], len(lines)]):
        if end - begin > MOST_LINES:
            return f"{end - begin} lines of one message"
        if len(re.sub(r"^.*?: error: ", "", lines[begin])) < 20:
            return f"why is not said: {lines[begin]}"
    return None
