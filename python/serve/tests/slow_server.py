"""tfmc-serve whose models take as long as a file is there: usage: slow_server.py FILE ARGUMENT...
With SLOW_LOAD they are not loaded before the process ends."""
import os
import sys
import time

from tfmc_serve import command, texts


class Slow:
    def __init__(self, model, file):
        self.model, self.file = model, file
        self.inputs, self.weights_bytes = model.inputs, model.weights_bytes

    def _call_alone(self, **inputs):
        if os.path.exists(self.file):
            print("computing", file=sys.stderr, flush=True)
        while os.path.exists(self.file):
            time.sleep(0.005)
        return self.model._call_alone(**inputs)

    __call__ = _call_alone


def main(file, *arguments):
    begin = texts.Served.__init__

    def slow(self, *args):
        if "SLOW_LOAD" in os.environ:
            time.sleep(10 ** 6)
        begin(self, *args)
        self.model = Slow(self.model, file)
    texts.Served.__init__ = slow
    return command.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
