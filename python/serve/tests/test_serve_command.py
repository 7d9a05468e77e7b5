"""The command: options, variables, kinds of folders, and what --check says."""
import contextlib
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

from servers import CASES, HERE, SOURCES, made, place, write_case

from tfmc_serve import app, command, texts
from tfmc_serve.metrics import Metrics
from tfmc_serve.shapes import SHAPES


def options(*arguments, **environment):
    return command.read_options([str(a) for a in arguments], environment)


class Options(unittest.TestCase):
    def refused(self, word, *arguments, **environment):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            options(*arguments, **environment)
        self.assertEqual(ended.exception.code, 2)
        self.assertIn(word, said.getvalue())

    def test_every_option_is_a_variable_too(self):
        values = {"host": "::1", "port": 1, "fd": 3, "threads": 2, "quantize": "int8", "max_length": 9, "max_waiting": 8,
                  "max_inputs": 7, "max_body": 6, "timeout": 5.5, "api_key_file": pathlib.Path("k"), "metrics_port": 4,
                  "origin": "https://a.b", "grace": 3.5, "log": "json", "check": True,
                  "max_rows": 3, "cache_bytes": 70000, "step_ms": 2.5, "speculate": 4, "prefixes": "shared"}
        flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in values.items()]
        variables = {f"TFMC_SERVE_{name.upper()}": "1" if value is True else str(value) for name, value in values.items()}
        for found in (options("x", *flags), options("x", **variables)):
            self.assertEqual({name: getattr(found, name) for name in values}, values)
        self.assertEqual(set(values) | {"places"}, set(vars(options("x"))))
        self.assertEqual(options("x", "--port=2", **variables).port, 2)

    def test_options_that_are_not_there_are_refused(self):
        for name in ("--draft=x", "--max-wait=3", "--reload"):
            self.refused(name, "x", name)
        for name in ("DRAFT", "MODELS", "HELP", "VERSION", "MAXBODY"):
            self.refused(f"TFMC_SERVE_{name}", "x", **{f"TFMC_SERVE_{name}": "1"})

    def test_values_that_are_wrong(self):
        self.refused("MODEL")
        for wrong in ("--port=70000", "--port=x", "--threads=0", "--max-inputs=0", "--timeout=0", "--timeout=nan", "--grace=-1",
                      "--log=xml", "--max-body=1e3", "--origin=*", "--origin=example.org", "--origin=https://a/", "--max-rows=0", "--cache-bytes=5", "--cache-bytes=0%", "--cache-bytes=x%",
                      "--cache-bytes=101%", "--step-ms=0", "--speculate=16", "--speculate=0", "--speculate=x",
                      "--prefixes=all"):
            self.refused(wrong.partition("=")[0], "x", wrong)
        self.assertEqual([options("x", f"--speculate={word}").speculate for word in ("auto", "off")], [-1, 0])
        self.assertGreater(options("x", "--cache-bytes=0.5%").cache_bytes, 1 << 20)
        self.refused("TFMC_SERVE_CHECK", "x", TFMC_SERVE_CHECK="maybe")
        self.refused("nothing", "a:nothing:x")


class Documents(unittest.TestCase):
    """docs/serving.md has every option with its default, every route, every member and every metric."""

    def setUp(self):
        self.page = (HERE.parents[2] / "docs" / "serving.md").read_text()

    def test_options(self):
        lines = [line for line in self.page.splitlines() if line.startswith("| `--")]
        for action in command.parser()._actions:
            if action.dest in ("help", "version", "models"):
                continue
            found = [line for line in lines if f"`{action.option_strings[0]}" in line.split("|")[1]]
            self.assertEqual(len(found), 1, action.option_strings)
            if isinstance(action.default, (int, float)) and not isinstance(action.default, bool):
                self.assertRegex(found[0].split("|")[2], rf"\b{action.default:.10g}\b", found)
        named = {flag for line in lines for flag in re.findall(r"`(--[a-z-]+)", line.split("|")[1])}
        self.assertLessEqual(named, {action.option_strings[0] for action in command.parser()._actions if action.option_strings})

    def test_routes_and_members(self):
        for post in app.POSTS:
            lines = [line for line in self.page.splitlines() if line.startswith("| `POST") and f"`{post.path}`" in
                     line.split("|")[1].replace("`POST ", "`")]
            self.assertEqual(len(lines), 1, post.path)
            text = lines[0] + (self.page if post.path == "/similarity" else "")
            for name in SHAPES[post.shape]:
                self.assertTrue(name == "model" or re.search(rf"\b{name}\b", text), (post.path, name))
        for path, *_ in app.GETS:
            self.assertIn(path.replace("{id}", "ID") if "page" not in path else "/", self.page)

    def test_metrics(self):
        found = re.findall(r"^# TYPE (\w+) ", Metrics().text().decode(), re.M)
        self.assertGreater(len(found), 20)
        for name in found:
            self.assertTrue(f"`{name}" in self.page or name.startswith("process_"), name)

    def test_text_of_metrics(self):
        """As Prometheus reads it: labels are escaped, buckets count all below them, too."""
        made = Metrics()
        made.answered("/embed", 'a"b\\c\n', 200, 0.003)
        made.answered("/embed", "d", 200, 0.005)
        made.answered("/embed", "d", 200, 1e9)
        lines = made.text().decode().splitlines()
        self.assertIn('tfmc_requests_total{code="200",model="a\\"b\\\\c\\n",route="/embed"} 1.0', lines)
        for bound, count in (("0.0025", 0), ("0.005", 2), ("300.0", 2), ("+Inf", 3)):
            self.assertIn(f'tfmc_request_seconds_bucket{{le="{bound}",route="/embed"}} {float(count)}', lines)
        self.assertIn('tfmc_request_seconds_count{route="/embed"} 3.0', lines)
        self.assertIn('tfmc_tokens_total{kind="written"} 0.0', lines)
        values = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
        self.assertTrue(1e6 < float(values["process_resident_memory_bytes"]) < 1e12)
        self.assertLess(abs(float(values["process_start_time_seconds"]) - time.time()), 86400)


class Kinds(unittest.TestCase):
    def folder(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return pathlib.Path(made.name)

    def test_kinds_of_checkpoints(self):
        """As the cases of tests/models name their architectures."""
        wanted = {"sentence_mean": "embed", "bert_classify": "classify", "gpt2": "write", "llama": "write",
                  "marian": "translate", "t5": "translate", "opt": "write", "bart": "translate"}
        for name, kind in wanted.items():
            folder = self.folder()
            for file, content in json.loads((CASES / f"{name}.json").read_text())["files"].items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_text(json.dumps(content))
            self.assertEqual(texts.kind_of(folder), kind, name)

    def test_folders_of_no_kind_or_of_two(self):
        folder = self.folder()
        with self.assertRaisesRegex(ValueError, "config.json"):
            texts.kind_of(folder)
        (folder / "config.json").write_text('{"architectures": ["BertModel"]}')
        with self.assertRaisesRegex(ValueError, "NAME:embed:FOLDER"):
            texts.kind_of(folder)
        (folder / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
        (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')
        with self.assertRaisesRegex(ValueError, "NAME:classify:FOLDER"):
            texts.kind_of(folder)


class Runs(unittest.TestCase):
    def run_it(self, *arguments):
        """The command in this process: (status, standard output, standard error)."""
        out, err = io.StringIO(), io.StringIO()
        handlers = logging.root.handlers[:]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command.main([str(argument) for argument in arguments])
        logging.root.handlers[:] = handlers
        return status, out.getvalue(), err.getvalue()

    def test_check_says_what_there_is(self):
        done = subprocess.run(
            [sys.executable, "-m", "tfmc_serve", "--check", place("embed"), "second:" + place("embed"),
             "r:rerank:" + place("rerank")], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": ":".join([*SOURCES, os.environ.get("PYTHONPATH", "")])})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([(json.loads(line)["name"], json.loads(line)["kind"]) for line in lines[:3]],
                         [("embed", "embed"), ("second", "embed"), ("r", "rerank")])
        self.assertIn("tokens a second", lines[3])

    def test_models_that_cannot_be_served(self):
        folder, file = made("embed")
        for words, *arguments in (
                (["two models", "embed"], place("embed"), place("embed")),
                (["does not write texts"], f"x:translate:{folder}={file}"),
                (["does not continue rows"], f"x:write:{folder}={file}"),
                (["64 positions", "--max-length"], "--max-length=65", place("write")),
                (["--quantize"], "--quantize=int8", place("write")),
                (["3 labels"], f"x:rerank:{made('classify')[0]}={made('classify')[1]}"),
                (["20 positions", "--max-length"], "--max-length=21", place("embed")),
                (["--quantize"], "--quantize=int8", place("embed")),
                (["no such file"], f"{folder}={folder}/nothing.tfmm"),
                (["logits"], f"x:embed:{made('classify')[0]}={made('classify')[1]}"),
                (["no keys"], "--api-key-file=/dev/null", place("embed"))):
            status, _, said = self.run_it("--check", *arguments)
            self.assertEqual(status, 1, (words, said))
            for word in words:
                self.assertIn(word.lower(), said.lower())
            self.assertNotIn("Traceback", said)

    def test_a_folder_is_compiled_with_rules(self):
        with tempfile.TemporaryDirectory() as folder:
            write_case(pathlib.Path(folder) / "m", "embed")
            status, out, said = self.run_it("--check", "--quantize=int8", "--max-length=9", f"small:{folder}/m")
        self.assertEqual(status, 0, said)
        found = json.loads(out.splitlines()[0])
        self.assertEqual((found["name"], found["quantize"], found["max_length"]), ("small", "int8", 9))


if __name__ == "__main__":
    unittest.main()
