"""The sources of the runtime, for programs that compile it themselves."""
import glob


def runtime_files(source):
    """All but those for machines without a C library, which have a malloc of their own."""
    found = glob.glob(f"{source}/runtime/**/*.c", recursive=True)
    return sorted(path for path in found if "/runtime/freestanding/" not in path)
