"""The line of a run's progress on stderr: the newest record of its log; those of validations stay."""
import sys


def show(record):
    said = "  ".join(f"{name} {value:.6g}" for name, value in record.items()
                     if isinstance(value, float) and name not in ("seconds", "lr", "norm"))
    sys.stderr.write(f"\r\033[K{record['kind']} {record['step']}  epoch {record['epoch']}  {said}")
    sys.stderr.write("\n" if record["kind"] == "valid" else "")
    sys.stderr.flush()
