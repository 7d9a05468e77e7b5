#!/usr/bin/env python3
"""How long tfmc-serve takes from its start to the first /ready that says 200, and what memory it has then.

usage: start.py [--times N] [--port N] ARGUMENT...

ARGUMENT: of tfmc-serve, which runs by this Python as `-m tfmc_serve`; `--` before those that begin with a dash. It must be
importable with its bytecode, as pip leaves it: the first start is not counted, and PYTHONDONTWRITEBYTECODE is not handed
on. Out: milliseconds of each start; resident memory, and the part of it that is no file.
"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time


def is_ready(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return b" 200 " in connection.recv(100)[:20]
    except OSError:
        return False


def memory(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)
             if name in ("VmRSS", "RssAnon")}
    return found["VmRSS"], found["RssAnon"]


def start(arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tfmc_serve", "--port", str(arguments.port), *arguments.arguments],
                               env=environment, stderr=subprocess.DEVNULL)
    try:
        while not is_ready(arguments.port):
            if process.poll() is not None:
                sys.exit("it ended before it was ready")
            time.sleep(0.002)
        return time.perf_counter() - began, *memory(process.pid)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--port", type=int, default=8199)
    parser.add_argument("arguments", nargs="+")
    arguments = parser.parse_args()
    made = [start(arguments) for _ in range(arguments.times + 1)][1:]
    print("ms to ready:", *(f"{1e3 * seconds:.0f}" for seconds, _, _ in made),
          f"(median {1e3 * statistics.median(seconds for seconds, _, _ in made):.0f})")
    print(f"memory: {statistics.median(all for _, all, _ in made) / 1e6:.1f} MB, of which no file "
          f"{statistics.median(own for _, _, own in made) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
