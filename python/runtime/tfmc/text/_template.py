"""Renders chat templates, a program of its own: python _template.py

A template is code of whoever made the folder. jinja2's sandbox keeps it from objects of Python, but stops neither loops
nor strings that double; this process ends when a template computes for too long, has no files to open, and gets an error
where it wants more memory than there is for it. Lines of JSON come in, each answered by one:

    {"template", "variables", "marks", "seconds", "bytes"}  ->  {"text"} or {"error"}

With "literals" in place of "variables" the answer is what the template writes itself: {"texts", "names"}. Nothing here is
imported from the package: the process begins in the time that jinja2 takes.
"""
import datetime
import json
import resource
import signal
import sys

NEWEST_HOLE = (3, 1, 6)  # the first version of jinja2 without a known way out of its sandbox
MEMORY = 1 << 30


def environment(marks):
    """What templates of transformers are written for: its settings, functions, and the tag `generation`."""
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """{% generation %} ... {% endgeneration %} says what the model wrote, which training asks for: its body."""
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        for mark in marks if ensure_ascii else "":
            text = text.replace(json.dumps(mark)[1:-1], mark)
        return text

    def refuse(message):
        raise jinja2.TemplateError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def literals(template):
    """The texts that stand in the template, and the names that it takes from outside."""
    from jinja2 import meta, nodes
    tree = environment("").parse(template)
    texts = [node.data for node in tree.find_all(nodes.TemplateData)]
    texts += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return {"texts": texts, "names": sorted(meta.find_undeclared_variables(tree))}


def answer(request):
    if "literals" in request:
        return literals(request["template"])
    made, size = [], 0
    for piece in environment(request["marks"]).from_string(request["template"]).generate(request["variables"]):
        made.append(piece)
        size += len(piece)
        if size > request["bytes"]:
            return {"error": f"it writes more than {request['bytes']} characters"}
    return {"text": "".join(made)}


def warm_up():
    """Imports what is imported when it is first needed: afterwards no file can be opened."""
    import jinja2
    for template in ("{{ x | tojson }}{% for i in range(2) %}{{ loop.index }}{% endfor %}", "{{ raise_exception('x') }}",
                     "{% if %}", "{{ x.__class__ }}"):
        try:
            literals(template)
            environment("").from_string(template).render(x=1)
        except jinja2.TemplateError:
            pass


def main():
    import jinja2
    version = tuple(int(part) for part in jinja2.__version__.split(".")[:3])
    warm_up()
    old = version < NEWEST_HOLE and f"jinja2 {jinja2.__version__} has holes in its sandbox: pip install -U jinja2"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # its signal ends the process
        try:
            made = {"error": old} if old else answer(request)
        except MemoryError:
            made = {"error": "it needs too much memory"}
        except RecursionError:
            made = {"error": "it calls itself without end"}
        except Exception as error:  # of the template's own, or of jinja2
            made = {"error": f"{error}" or type(error).__name__}
            if getattr(error, "lineno", None):
                made["error"] += f" (line {error.lineno} of the template)"
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(made) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    main()
