"""Generation, streams, decoders and checkpoints, against the command and against what transformers gave."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest
import zlib

import numpy as np

import tfmc
from support import LONG, ONE, ONE_WEIGHTS, X, Case, one, python, resident, save_file

CASES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "cases"


def write_checkpoint(case, folder):
    """What tests/models/checkpoint.py writes, without a package for safetensors."""
    for name, content in case["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    tensors = {}
    for name, shape in case["weights"].items():
        noise = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
        plain = np.float32(name.endswith(".weight")) + np.float32(0.1) * noise
        tensors[name] = np.array(np.float32(case["gain"]) * noise if len(shape) > 1 else plain, order="C")
    save_file(tensors, folder / "model.safetensors")


def read_tensor(path, name):
    """A tensor of a safetensors file of f32."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:8 + size])[name]
    first, last = (8 + size + at for at in entry["data_offsets"])
    return np.frombuffer(content[first:last], np.float32).reshape(entry["shape"])


class Checkpoint:
    """A case of tests/models: its folder and its model, made once."""

    made = {}

    def __new__(cls, name):
        if name not in cls.made:
            self = cls.made[name] = super().__new__(cls)
            import atexit
            import shutil
            import tempfile
            self.case = json.loads((CASES / f"{name}.json").read_text())
            self.folder = pathlib.Path(tempfile.mkdtemp())
            atexit.register(shutil.rmtree, self.folder)
            write_checkpoint(self.case, self.folder)
            self.model = tfmc.from_pretrained(self.folder)
            self.inputs = {k: np.array(v) for k, v in self.case["inputs"].items()}
        return cls.made[name]

    def copy(self, folder):
        """Its folder as a new one below `folder`, for tests that add files."""
        import shutil
        return pathlib.Path(shutil.copytree(self.folder, pathlib.Path(folder) / "copy"))


def ended(rows):
    """Without what fills a row after its end."""
    rows = [list(map(int, row)) for row in rows]
    for row in rows:
        while len(row) > 1 and row[-1] in (0, 1, 2):
            row.pop()
    return rows


class Checkpoints(Case):
    def test_outputs_are_those_of_transformers(self):
        for name in ("bert", "gpt2", "marian"):
            c = Checkpoint(name)
            results = c.model.run(c.inputs)
            for output, wanted in c.case["outputs"].items():
                wanted, made = np.array(wanted), results[output]
                if c.case["masked"]:
                    keep = c.inputs[c.case["masked"]] != 0
                    wanted, made = (a[keep] if a.shape[:2] == keep.shape else a for a in (wanted, made))
                self.assertLess(np.abs(made - wanted).max() / max(1, np.abs(wanted).max()), 1e-5, (name, output))
            self.assertEqual(c.model.folder, c.folder)

    def test_tokens_are_those_of_transformers(self):
        for name in ("gpt2", "marian"):
            c = Checkpoint(name)
            inputs = {k: v for k, v in c.inputs.items() if k != c.case["grows"] or not c.case["encoder"]}
            for beams, wanted in c.case["tokens"].items():
                made = c.model.generate(num_beams=int(beams), max_new_tokens=6, **inputs)
                self.assertEqual(ended(made), ended(wanted), (name, beams))
                self.assertEqual(made.scores is None, beams == "1")

    def test_a_source_can_be_read_changed_and_written(self):
        c = Checkpoint("gpt2")
        folder = pathlib.Path(self.folder())
        source = tfmc.import_model(c.folder, folder / "copy.tfm", strict=True)
        self.assertEqual((folder / "copy.tfm").read_text(), source.text)
        self.assertIn("generate", source.text)
        model = tfmc.compile(source.write(folder / "new"), weights=c.folder)
        np.testing.assert_array_equal(model(c.inputs["input_ids"]), c.model(c.inputs["input_ids"]))
        description = tfmc.check(source)
        self.assertEqual((description.name, description.inputs, description.outputs),
                         (c.model.name, c.model.inputs, c.model.outputs))
        self.assertEqual(set(description.sizes), set(c.model.sizes))
        self.assertEqual(len(description.weights), len(c.case["weights"]))
        self.assertTrue(any("<=" in condition for condition in description.conditions))

    def test_gguf_files_are_checkpoints(self):
        sys.path.insert(0, str(CASES.parent))
        import gguf_file
        c, path = Checkpoint("qwen2"), pathlib.Path(self.folder()) / "model.gguf"
        weights = {n: read_tensor(c.folder / "model.safetensors", n) for n in c.case["weights"]}
        gguf_file.write(path, c.case["files"]["config.json"], weights)
        model = tfmc.from_pretrained(path)
        self.assertEqual(model.run(c.inputs)["logits"].tobytes(), c.model.run(c.inputs)["logits"].tobytes())
        self.assertEqual(model.folder, path)

    def test_refusals(self):
        folder = pathlib.Path(self.folder())
        self.refused(tfmc.EnvError, "config.json", tfmc.from_pretrained, folder)
        (folder / "config.json").write_text('{"model_type": "gpt3"}')
        save_file(ONE_WEIGHTS, folder / "model.safetensors")
        self.refused(tfmc.Error, "gpt3", tfmc.import_model, folder)
        error = self.refused(tfmc.CompileError, "<text>:4:9: error: unknown", tfmc.check, ONE.replace("product(x)", "q(x)"))
        self.assertEqual(error.place, "<text>:4:9")
        self.refused(tfmc.UsageError, "file or a folder", tfmc.check, ONE, weights=ONE_WEIGHTS)

    @unittest.skipUnless(__import__("shutil").which("cc"), "it links")
    def test_build_writes_a_library(self):
        folder = pathlib.Path(self.folder())
        save_file(ONE_WEIGHTS, folder / "w.safetensors")
        path = tfmc.build(ONE, folder / "libone.so", weights=folder / "w.safetensors")
        self.assertEqual(sorted(f.name for f in folder.iterdir()), ["libone.so", "one.h", "one.tfmw", "w.safetensors"])
        np.testing.assert_array_equal(tfmc.load(path)(X), one()(X))
        with tfmc.load(path) as model:
            self.refused(tfmc.UsageError, "copy its .so", model.save, folder / "one.tfmm")


class Generating(Case):
    def setUp(self):
        self.gpt2, self.marian = Checkpoint("gpt2"), Checkpoint("marian")
        self.model, self.prompts = self.gpt2.model, self.gpt2.inputs["input_ids"]

    def test_what_the_model_says(self):
        says = self.model.generation
        self.assertEqual((says.input, says.output, says.incremental), ("input_ids", "logits", True))
        self.assertEqual(says.vocab, self.model.outputs["logits"].shape[-1])
        self.assertGreater(says.bytes_per_token, 0)
        self.assertIsNone(one().generation)
        self.refused(tfmc.UsageError, "no generate block", one().generate, [[1]])

    def test_rows_of_different_lengths(self):
        rows = [[36, 31, 9], [18, 23, 11, 27, 19], [7]]
        together = self.model.generate(rows, max_new_tokens=4)
        for row, made in zip(rows, together):
            np.testing.assert_array_equal(made, self.model.generate([row], max_new_tokens=4)[0])
        self.assertEqual(len(together), 3)
        self.assertEqual(together.padded.shape[0], 3)
        self.assertEqual(together.lengths.tolist(), [len(r) for r in together])
        self.assertGreaterEqual(together.n_tokens, 3)
        self.assertEqual([r.tolist() for r in together[1:]], [together[1].tolist(), together[2].tolist()])

    def test_it_is_what_the_command_writes(self):
        folder = pathlib.Path(self.folder())
        tfmc.import_model(self.gpt2.folder, folder / "m.tfm")
        np.save(folder / "ids.npy", self.prompts.astype(np.int32))
        for flags, options in (([], {}), (["--num-beams=3"], {"num_beams": 3}),
                               (["--do-sample", "--seed=5", "--top-k=7", "--temperature=0.8"],
                                {"do_sample": True, "seed": 5, "top_k": 7, "temperature": 0.8}),
                               (["--repetition-penalty=1.5", "--suppress-tokens=3,4"],
                                {"repetition_penalty": 1.5, "suppress_tokens": [3, 4]})):
            subprocess.run([tfmc._find.compiler(), "generate", "-q", folder / "m.tfm", "--weights", self.gpt2.folder,
                            "--input", f"input_ids=@{folder}/ids.npy", "--max-new-tokens=7", *flags, "-o",
                            f"sequences=@{folder}/out.npy"], check=True)
            made = self.model.generate(self.prompts, max_new_tokens=7, **options)
            np.testing.assert_array_equal(made.padded, np.load(folder / "out.npy"), str(flags))

    def test_options(self):
        base = self.model.generate(self.prompts, max_new_tokens=5)
        self.assertEqual(self.model.generate(self.prompts, max_length=11).padded.shape[1], 11)
        banned = int(base[0][len(self.prompts[0])])
        for options in ({"suppress_tokens": [banned]}, {"bad_words_ids": [[banned]]}, {"suppress_tokens": banned}):
            row = self.model.generate(self.prompts, max_new_tokens=5, **options)[0]
            self.assertNotIn(banned, row[len(self.prompts[0]):])
        with_scores = self.model.generate(self.prompts, max_new_tokens=3, return_token_scores=True)
        self.assertEqual(with_scores.token_scores.shape, with_scores.padded.shape)
        config = self.gpt2.folder / "generation_config.json"
        for given in (config, self.gpt2.folder, {"max_new_tokens": 2, "use_cache": True, "typical_p": 1.0, "top_h": None}):
            made = self.model.generate(self.prompts, config=given, max_new_tokens=5)
            np.testing.assert_array_equal(made.padded, base.padded)
        for early in (True, False, "never"):
            self.model.generate(self.prompts, num_beams=2, early_stopping=early, max_new_tokens=3)

    def test_settings_of_a_config(self):
        """What is no option of generation is known to change nothing, or refused; kinds of values are looked at."""
        for wrong in ({"foreign": 3}, {"typical_p": 0.5}, {"guidance_scale": True}, {"penalty_alpha": 0.6, "use_cache": True}):
            self.refused(tfmc.InputError, next(iter(wrong)), self.model.generate, self.prompts, config=wrong)
        for name, values in (("do_sample", ["false", 2, 0.0, []]), ("temperature", ["0.5", True, [1.0]]), ("num_beams", [True, "2", 2.0]),
                             ("eos_token_id", [True, "2", [2, "3"], [2.5], {2: 3}]), ("suppress_tokens", [[True], [None]])):
            for value in values:
                with self.subTest(name=name, value=value):
                    self.refused(tfmc.UsageError, name, self.model.generate, self.prompts, config={name: value}, max_new_tokens=2)
        for fine in ({"do_sample": np.True_}, {"do_sample": 1}, {"temperature": np.float32(0.5), "do_sample": True}, {"eos_token_id": np.array([2])}):
            self.model.generate(self.prompts, config=fine, max_new_tokens=2)

    def test_wrong_options_are_named(self):
        g = self.model.generate
        self.refused(tfmc.UsageError, ["'num_beam'", "did you mean 'num_beams'"], g, self.prompts, num_beam=2)
        self.refused(tfmc.UsageError, "early_stopping is 'maybe'", g, self.prompts, num_beams=2, early_stopping="maybe")
        self.refused(tfmc.UsageError, "num_beams is 2.5", g, self.prompts, num_beams=2.5)
        for limit in "max_new_tokens", "max_length":  # in C -1 says that none is given
            self.refused(tfmc.InputError, f"{limit} is -1, which is out of range", g, self.prompts, **{limit: -1})
        for wrong in (object(), np.float32(1), np.array([True])):
            self.refused(tfmc.UsageError, "do_sample is ", g, self.prompts, do_sample=wrong)
        self.refused(tfmc.InputError, "seed is -1", g, self.prompts, do_sample=True, seed=-1)
        self.refused(tfmc.InputError, "num_beams", g, self.prompts, num_beams=0)
        self.refused(tfmc.InputError, "top_p", g, self.prompts, do_sample=True, top_p=1.5)
        self.refused(tfmc.UsageError, "the same; give one", g, self.prompts, input_ids=self.prompts)
        self.refused(tfmc.InputError, "input_ids", g, self.prompts + 1000)
        self.refused(tfmc.InputError, "has 1 axis, expected 2", g, self.prompts[0])
        self.refused(tfmc.UsageError, "is missing", self.marian.model.generate)
        self.refused(tfmc.InputError, "axis 1 is 3, expected 5", self.marian.model.generate,
                     input_ids=[[1, 2, 3, 4, 5]], attention_mask=[[1, 1, 1]])

    def test_callbacks(self):
        seen = []
        made = self.model.generate(self.prompts[:1], max_new_tokens=5, on_token=lambda item, token: seen.append((item, token)))
        self.assertEqual([t for _, t in seen], made[0][len(self.prompts[0]):].tolist())
        made = self.model.generate(self.prompts[:1], max_new_tokens=5, on_token=lambda item, token: True)
        self.assertEqual(made.n_tokens, 1)
        rows, kept = [], []

        def only_nine(item, tokens, scores):
            rows.append(tokens.tolist())
            kept.append(scores)
            scores[:] = -np.inf
            scores[9] = 0
        made = self.model.generate(self.prompts, max_new_tokens=3, on_scores=only_nine)
        self.assertEqual(made.padded[:, -3:].tolist(), [[9] * 3] * 2)
        self.assertEqual(rows[0], self.prompts[0].tolist())
        self.assertEqual(kept[0][9], 0)  # a copy, which may be kept

    def test_callbacks_that_raise_call_and_close(self):
        def fails(*anything):
            raise KeyError("mine")
        self.refused(KeyError, "mine", self.model.generate, self.prompts, on_token=fails)
        self.refused(KeyError, "mine", self.model.generate, self.prompts, on_scores=fails)
        inner = []
        self.model.generate(self.prompts, max_new_tokens=2,
                            on_token=lambda i, t: inner.append(self.model.generate(self.prompts, max_new_tokens=2)) and None)
        np.testing.assert_array_equal(inner[0].padded, self.model.generate(self.prompts, max_new_tokens=2).padded)
        self.refused(tfmc.UsageError, "a callback cannot close", self.model.generate, self.prompts,
                     on_token=lambda i, t: self.model.close())
        self.assertFalse(self.model.closed)

    def test_a_callback_may_fork(self):
        def forks(item, token):
            child = os.fork()
            if child:
                self.assertEqual(os.waitpid(child, 0)[1], 0)
            else:
                forked.append(True)
        forked = []
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = self.model.generate(self.prompts, max_new_tokens=1, on_token=forks)
            except tfmc.UsageError as error:
                good = "forked" in str(error)
                os._exit(0 if good and len(self.model.generate(self.prompts, max_new_tokens=1)) == 2 else 1)
            except BaseException:
                if forked:
                    os._exit(2)
                raise
        self.assertEqual(made.n_tokens, 2)

    def test_without_prompts(self):
        made = self.marian.model.generate(max_new_tokens=3, **{k: v for k, v in self.marian.inputs.items()
                                                               if k != "decoder_input_ids"})
        self.assertEqual(len(made), 2)
        start = self.marian.model.generate(max_new_tokens=3, decoder_start_token_id=7,
                                           **{k: v for k, v in self.marian.inputs.items() if k != "decoder_input_ids"})
        self.assertEqual([int(r[0]) for r in start], [7, 7])


class Streams(Case):
    def setUp(self):
        c = Checkpoint("gpt2")
        self.model, self.prompts = c.model, c.inputs["input_ids"]

    def test_tokens_come_one_by_one(self):
        stream = self.model.stream(self.prompts[:1], max_new_tokens=6)
        tokens = list(stream)
        whole = self.model.generate(self.prompts[:1], max_new_tokens=6)
        self.assertEqual([t.token for t in tokens], whole[0][len(self.prompts[0]):].tolist())
        self.assertEqual({t.item for t in tokens}, {0})
        np.testing.assert_array_equal(stream.generated.padded, whole.padded)
        self.assertRaises(StopIteration, next, stream)

    def test_errors_come_to_the_reader(self):
        self.refused(tfmc.UsageError, "num_beam", self.model.stream, self.prompts, num_beam=3)
        stream = self.model.stream(self.prompts + 1000)
        self.refused(tfmc.InputError, "input_ids", next, stream)

        def fails(*anything):
            raise KeyError("mine")
        self.refused(KeyError, "mine", list, self.model.stream(self.prompts, on_scores=fails))

    def test_dropped_streams_leave_nothing(self):
        next(self.model.stream(self.prompts, max_new_tokens=30))
        before = threading.active_count()
        for i in range(10000 if LONG else 200):
            if i == 100:
                descriptors, kept = len(os.listdir("/proc/self/fd")), resident()
            stream = self.model.stream(self.prompts, max_new_tokens=40)
            next(stream)
            if i % 2:
                stream.close()
            del stream
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(300)
        self.assertLessEqual(threading.active_count(), before)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), descriptors)
        if "TFM_SANITIZED" not in os.environ:  # a sanitizer keeps memory of its own
            self.assertLess(resident() - kept, 4 << 20)
        self.assertEqual(self.model.generate(self.prompts, max_new_tokens=1).n_tokens, 2)


class Decoders(Case):
    def test_rows_are_those_of_the_whole_model(self):
        c = Checkpoint("gpt2")
        ids = c.inputs["input_ids"].astype(np.int32)
        whole = c.model(ids)
        with c.model.decoder(max_rows=3, max_length=16) as decoder:
            a, b = decoder.join(), decoder.join()
            first = decoder.step([(a, ids[0, :4]), (b, ids[1, :2])], kept=2)
            np.testing.assert_array_equal(first[0], whole[0, 2:4])
            np.testing.assert_array_equal(first[1], whole[1, 0:2])
            second = decoder.step([(b, ids[1, 2:5].tolist())])
            np.testing.assert_array_equal(second[0, 0], whole[1, 4])
            self.assertEqual((decoder.length(a), decoder.length(b)), (4, 5))
            decoder.truncate(b, 2)
            np.testing.assert_array_equal(decoder.step([(b, ids[1, 2:5])])[0, 0], whole[1, 4])
            decoder.reorder([b, b])
            self.assertEqual((decoder.length(0), decoder.length(1)), (5, 5))
            self.assertEqual(decoder.step([(0, [3])], kept=0).shape, (1, 0, whole.shape[-1]))
            decoder.leave(1)
            self.refused(tfmc.InputError, "no row 1", decoder.length, 1)
            self.refused(tfmc.InputError, "", decoder.step, [(0, [100000])])
            self.refused(tfmc.UsageError, "pairs", decoder.step, [3])
            self.refused(tfmc.InputError, "", decoder.step, [(9, [1])])
        self.refused(tfmc.UsageError, "the decoder is closed", decoder.join)

    def test_forked_rows_share_their_beginning(self):
        c = Checkpoint("gpt2")
        ids = c.inputs["input_ids"].astype(np.int32)[:, :6]
        branches = np.repeat(ids[:1], 3, 0)
        branches[1, 4:] = ids[1, 4:]
        branches[2, 5] = (ids[0, 5] + 1) % 20
        whole = c.model(branches)
        with c.model.decoder(max_rows=4, max_length=8) as decoder:
            other, row = decoder.join(), decoder.join()
            decoder.step([(other, ids[1, :3]), (row, ids[0, :4])])
            rows = [row, decoder.fork(row), decoder.fork(row)]
            self.assertEqual(rows, [1, 2, 3])
            self.assertEqual([decoder.length(r) for r in range(4)], [3, 4, 4, 4])
            logits = decoder.step([(r, branches[i, 4:]) for i, r in enumerate(rows)], kept=2)
            np.testing.assert_array_equal(logits, whole[:, 4:6])
            np.testing.assert_array_equal(decoder.step([(other, ids[1, 3:6])])[0, 0], c.model(ids[1:])[0, 5])
            self.refused(tfmc.InputError, "room for 4 rows", decoder.fork, row)
            decoder.leave(row)
            self.refused(tfmc.InputError, "no row 1", decoder.fork, row)
            self.assertEqual(decoder.fork(rows[1]), row)

    def test_sources(self):
        c = Checkpoint("marian")
        ids = c.inputs["decoder_input_ids"].astype(np.int32)
        whole = c.model.run(c.inputs)["logits"]
        sources = {k: v for k, v in c.inputs.items() if k != "decoder_input_ids"}
        decoder = c.model.decoder(max_rows=2, max_length=8, **sources)
        rows = [decoder.join(1), decoder.join(0)]
        logits = decoder.step([(rows[0], ids[1, :3]), (rows[1], ids[0, :3])])
        np.testing.assert_array_equal(logits[:, 0], whole[[1, 0], 2])
        self.refused(tfmc.InputError, "", decoder.join, 5)
        self.refused(tfmc.UsageError, "the sources are", c.model.decoder, max_rows=1, max_length=4)
        self.refused(tfmc.UsageError, "incremental", one().decoder, max_rows=1, max_length=4)

    def test_one_caller_at_a_time(self):
        """Two threads step; each call computes or is refused, and none is lost."""
        c = Checkpoint("gpt2")
        decoder, said = c.model.decoder(max_rows=1, max_length=4000), []
        row = decoder.join()

        def work():
            for _ in range(400):
                try:
                    decoder.step([(row, [1])])
                    said.append("stepped")
                    decoder.truncate(row, 0)
                except tfmc.UsageError as error:
                    said.append(str(error))
                except tfmc.InputError:
                    said.append("too long")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(said), {"stepped", "another thread is using the decoder", "too long"})
        self.assertIn("stepped", said)

    def test_a_model_that_is_closed_ends_its_decoders(self):
        c = Checkpoint("gpt2")
        model = tfmc.from_pretrained(c.folder)
        decoder = model.decoder(max_rows=1, max_length=4)
        model.close()
        self.refused(tfmc.UsageError, "closed", decoder.join)
        decoder.close()


def hear_interrupts():
    """What a shell runs in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupts(Case):
    """Ctrl-C, in a process of its own."""

    def interrupt(self, code, folder):
        child = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True,
                                 preexec_fn=hear_interrupts,
                                 env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "ready\n")
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out = child.communicate(timeout=90)[0]  # less than what hangs sleeps
        self.assertEqual((child.returncode, out), (0, "interrupted\n"))

    def test_generation_ends(self):
        self.interrupt("""
import sys, numpy as np, tfmc
model = tfmc.from_pretrained(sys.argv[1])
prompt, none = [[36, 31, 9]], lambda item, tokens, scores: None
try:
    print("ready", flush=True)
    for _ in range(10**6): model.generate(prompt, max_new_tokens=40)
except KeyboardInterrupt:
    assert len(model.generate(prompt, max_new_tokens=3)) == 1
    print("interrupted")
""", Checkpoint("gpt2").folder)

    def test_compiling_ends(self):
        compiler = pathlib.Path(self.folder()) / "hangs"
        compiler.write_text("#!/bin/sh\nexec /bin/sleep 100\n")
        compiler.chmod(0o755)
        self.interrupt("""
import sys, tfmc
try:
    print("ready", flush=True)
    tfmc.compile("model M() { forward(x: f32[n]) { y = x\\n return y } }", compiler=sys.argv[1])
except KeyboardInterrupt: print("interrupted")
""", compiler)


if __name__ == "__main__":
    unittest.main()
