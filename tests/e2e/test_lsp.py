#!/usr/bin/env python3
"""usage: test_lsp.py TFMC ROOT

The language server: what it says of texts, names and values, at every place of models and in either unit of positions; that
a rename changes nothing but names; and that no message, however broken, long or late, makes it hang or end by a signal.
The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import tally
from lsp_client import Client

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TEXT = """\
# A block with a residual.
# Two lines.
layer Block(d, hidden = 4 * d) {
  up   = Linear(d, hidden)
  down = Linear(hidden, d) as "proj"
  require d > 0, "d is {d}"
  fn both(x) = x -> up -> gelu

  forward(x) = x + (both(x) -> down)
}

model Net(d = 16, depth = 3) {
  embed  = Embedding(100, d)
  blocks = [Block(d, hidden = 2 * d) for i in depth]

  forward(ids: i32[batch, time]) {
    x = embed(ids)
    y = blocks(x)
    return y = y + x * blocks[0].up.weight[0, 0]
  }
}
"""
METHODS = ["hover", "definition", "references", "documentHighlight", "prepareRename", "completion", "signatureHelp"]


def place(text, what, skip=0):
    """Line and character of what stands in the text once, or of the place `skip` characters behind its beginning."""
    assert text.count(what) == 1, f"{what} stands there {text.count(what)} times"
    before = text[:text.index(what) + skip]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def offset(text, position):
    """Of a position in UTF-16."""
    lines = text.splitlines(keepends=True) + [""]
    before = "".join(lines[:position["line"]])
    rest, units = text[len(before):], position["character"]
    n = 0
    while units > 0:
        units -= 2 if ord(rest[n]) > 0xffff else 1
        n += 1
    return len(before) + n


def applied(text, edits):
    spans = sorted(((offset(text, e["range"]["start"]), offset(text, e["range"]["end"]), e["newText"]) for e in edits), reverse=True)
    for begin, end, new in spans:
        text = text[:begin] + new + text[end:]
    return text


class Lsp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name).resolve()
        self.env = {**os.environ, "TFM_CACHE_DIR": str(self.work / "cache")}

    def client(self, **kwargs):
        client = Client(TFMC, env=self.env, **kwargs)
        self.addCleanup(lambda: client.process.poll() is None and client.close())
        return client

    def ends(self, client, code=0):
        self.assertEqual(client.end(), code, client.stderr)
        self.assertEqual(client.stderr, "")

    def opened(self, text=TEXT, name="net.tfm", **kwargs):
        (self.work / name).write_text(text)
        client = self.client(**kwargs)
        return client, client.open(self.work / name, text)

    def hover(self, client, uri, at):
        found = client.at("textDocument/hover", uri, *at)
        return found and found["contents"]["value"]


class Messages(Lsp):
    def test_messages_come_with_their_place_and_go_when_it_is_mended(self):
        client, uri = self.opened()
        self.assertEqual(client.messages(uri, 1), [])
        client.change(uri, TEXT.replace("embed(ids)", "embd(ids)"), 2)
        found, = client.messages(uri, 2)
        line, character = place(TEXT, "embed(ids)")
        self.assertEqual(found["range"], {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 4}})
        self.assertEqual((found["severity"], found["code"], found["source"]), (1, "E0202", "tfmc"))
        self.assertIn("did you mean 'embed'", found["message"])
        client.change(uri, TEXT, 3)
        self.assertEqual(client.messages(uri, 3), [])
        self.ends(client)

    def test_several_errors_and_a_warning(self):
        client, uri = self.opened(TEXT.replace("x = embed(ids)", "x = embed(ids").replace("y = blocks(x)", "y = )"))
        self.assertGreaterEqual(len(client.messages(uri, 1)), 1)
        client.change(uri, TEXT.replace("  embed  =", "  unused = Linear(d, d)\n  embed  ="), 2)
        found, = client.messages(uri, 2)
        self.assertEqual((found["severity"], found["message"]), (2, "member 'unused' of Net is not used"))
        self.ends(client)

    def test_a_file_without_a_model_is_only_parsed(self):
        client, uri = self.opened("layer A(d) {\n  a = Linear(d, d)\n  forward(x) = a(x)\n}\n")
        self.assertEqual(client.messages(uri, 1), [])
        client.change(uri, "layer A(d) {\n  a = = 1\n}\n", 2)
        self.assertEqual(client.messages(uri, 2)[0]["code"], "E0101")
        self.ends(client)

    def test_every_model_of_a_file_has_messages(self):
        text = "model A { forward(x: f32[n]) { return y = x + unheard } }\nmodel B { forward(x: f32[n]) { return y = x + unknown_one } }\n"
        client, uri = self.opened(text)
        self.assertEqual({m["message"] for m in client.messages(uri, 1)}, {"unknown name 'unheard'", "unknown name 'unknown_one'"})
        self.ends(client)

    def test_included_files_as_they_are_open(self):
        part, main = 'layer Part(d) {\n  a = Linear(d, d)\n  forward(x) = a(x)\n}\n', ('include "parts/part.tfm"\n'
            'model M(d = 4) {\n  p = Part(d)\n  forward(x: f32[n, d]) { return y = p(x) }\n}\n')
        (self.work / "parts").mkdir()
        (self.work / "parts/part.tfm").write_text(part)
        client, uri = self.opened(main)
        self.assertEqual(client.messages(uri, 1), [])
        other = client.open(self.work / "parts/part.tfm", part.replace("= a(x)", "= b(x)"))  # not on the disk
        client.wait(lambda: any(n["params"]["uri"] == other and n["params"]["diagnostics"] for n in client.notices), "the fault of the part")
        found, = client.messages(other)
        self.assertEqual((found["message"].split(",")[0], found["range"]["start"]["line"]), ("unknown name 'b'", 2))
        self.assertEqual(client.messages(uri), [])
        self.assertIn("module Linear", self.hover(client, other, (1, 2)))  # known from the model that includes it
        client.change(other, part, 2)
        client.wait(lambda: client.notices[-1]["params"] and client.messages(other) == [], "the part is mended")
        found, = client.at("textDocument/definition", uri, *place(main, "Part(d)"))
        self.assertEqual((found["uri"], found["range"]["start"]), (other, {"line": 0, "character": 6}))
        self.assertEqual(client.at("textDocument/definition", uri, 0, 12)["uri"], other)
        client.tell("textDocument/didClose", textDocument={"uri": uri})
        self.assertIsNone(client.answers.get("none"))
        self.ends(client)

    def test_messages_of_a_closed_text_go(self):
        client, uri = self.opened("model M { forward(x: f32[n]) { return y = x + oops } }\n")
        self.assertEqual(len(client.messages(uri, 1)), 1)
        client.tell("textDocument/didClose", textDocument={"uri": uri})
        client.wait(lambda: client.notices[-1]["params"]["uri"] == uri and not client.notices[-1]["params"]["diagnostics"], "an empty list")
        self.ends(client)

    def test_what_goes_wrong_within_a_standard_layer_is_shown_where_the_text_led_there(self):
        text = "model M {\n  a = MultiheadAttention(6, 4)\n  forward(x: f32[n, t, 6]) { return y = a(x, x, x) }\n}\n"
        client, uri = self.opened(text)
        found = client.messages(uri, 1)[0]
        self.assertEqual(found["range"]["start"]["line"], 1)
        standard = found["relatedInformation"][0]["location"]["uri"]
        self.assertTrue(standard.startswith("file://") and standard.endswith("/std.tfm"), standard)
        self.assertIn("require num_heads", pathlib.Path(standard.removeprefix("file://")).read_text())
        self.ends(client)

    def test_variants_of_definitions(self):
        text = "model M(d = 4, heads = 2) {\n  require d % heads == 0, \"{d} and {heads}\"\n  forward(x: f32[n, d]) { return y = x }\n}\n"
        client, uri = self.opened(text, options={"variants": [["heads=3"], ["d=6", "other=1"], ["heads=5"]]})
        self.assertEqual({m["message"] for m in client.messages(uri, 1)}, {"4 and 3", "4 and 5"})
        client.tell("workspace/didChangeConfiguration", settings={"tfmc": {"define": ["d=8"]}})
        client.wait(lambda: not client.notices[-1]["params"]["diagnostics"], "no message")
        self.assertIn("f32[n, 8]", self.hover(client, uri, place(text, "y = x", 4)))
        self.ends(client)

    def test_only_the_last_of_many_changes_is_told(self):
        client, uri = self.opened()
        for version in range(2, 200):
            client.change(uri, TEXT + "#" * version, version)
        client.messages(uri, 199)
        self.assertLess(len(client.notices), 150)
        self.ends(client)


class Places(Lsp):
    def test_characters_are_units_of_utf_16_or_bytes(self):
        line = '  require d > 0, "\U0001f600\u00e9\u20ac {d}"  wrong = d + nothing\n'
        text = f"model M(d = 4) {{\n{line}  forward(x: f32[n, d]) {{ return y = x * wrong }}\n}}\n"
        for units, width in ((None, lambda s: len(s.encode("utf-16-le")) // 2), (["utf-32", "utf-8"], lambda s: len(s.encode()))):
            capabilities = {"general": {"positionEncodings": units}} if units else {}
            client, uri = self.opened(text, capabilities=capabilities)
            self.assertEqual(client.capabilities["positionEncoding"], "utf-8" if units else "utf-16")
            begin = width(line[:line.index("nothing")])
            found = client.messages(uri, 1)[0]["range"]
            self.assertEqual(found, {"start": {"line": 1, "character": begin}, "end": {"line": 1, "character": begin + 7}})
            at = width(line[:line.index("{d}") + 1])
            found, = client.at("textDocument/definition", uri, 1, at)
            self.assertEqual(found["range"]["start"], {"line": 0, "character": 8})
            self.ends(client)

    def test_places_beyond_lines_and_texts_are_their_ends(self):
        client, uri = self.opened()
        for line, character in ((2, 9999), (9999, 0), (2**31 + 5, 2**40)):
            client.at("textDocument/hover", uri, line, character)
        for bad in ({"line": -1, "character": 0}, {"line": 0}, {"line": "0", "character": 0}, 7):
            self.assertEqual(client.refused("textDocument/hover", textDocument={"uri": uri}, position=bad)["code"], -32602)
        self.ends(client)

    def test_ends_of_lines(self):
        for end in ("\n", "\r\n", "\r"):
            client, uri = self.opened(TEXT.replace("\n", end))
            found, = client.at("textDocument/definition", uri, *place(TEXT, "embed(ids)"))
            self.assertEqual(found["range"]["start"]["line"], place(TEXT, "embed  =")[0])
            edits = client.ask("textDocument/formatting", textDocument={"uri": uri}, options={})
            made = edits[0]["newText"] if edits else TEXT
            self.assertEqual(made, TEXT)
            self.ends(client)


class Knowledge(Lsp):
    def test_what_stands_under_the_pointer(self):
        client, uri = self.opened()
        for what, skip, wanted in [
                ("layer Block", 6, "layer Block(d, hidden = 4 * d)\n```\n\nA block with a residual.\nTwo lines."),
                ("up   =", 0, "module Linear   # 3 times"), ("hidden = 4 * d", 0, ": 32   # 3 times"), ("{d}", 1, "config value d\n: 16"),
                ("= x -> up -> gelu", 13, "gelu(x)\n```\n\nx/2 (1 + erf"), ("blocks = [", 0, "3 modules Block"),
                ("depth = 3", 0, ": 3"), ("x = embed", 0, "x: f32[batch, time, 16]"), ("= y + x", 4, "f32[batch, time, 16]"),
                ("ids: i32", 0, "parameter ids: i32[batch, time]"), ("up.weight[0", 3, ": f32[32, 16]"), ("+ x * b", 0, "f32[batch, time, 16]"),
                ("Linear(d, hidden)", 0, "layer Linear(in_features, out_features, bias = true)"), ("batch, time", 0, "size batch")]:
            self.assertIn(wanted, self.hover(client, uri, place(TEXT, what, skip)) or "nothing", what)
        self.assertIsNone(self.hover(client, uri, place(TEXT, "# Two", 2)))
        client.change(uri, TEXT.replace("y = blocks(x)", "y = ("), 2)  # names are known around a fault, values are not
        self.assertIn("layer Block", self.hover(client, uri, place(TEXT, "layer Block", 6)))
        self.ends(client)

    def test_definitions(self):
        client, uri = self.opened()
        for what, skip, wanted in [
                ("= x -> up", 7, "up   ="), ("both(x) -> down", 0, "both(x) = x"), ("both(x) -> down", 11, "down = L"), ("{d}", 1, "d, hidden = 4"),
                ("hidden = 2 * d", 0, "hidden = 4"), ("Block(d, hidden = 2", 0, "Block(d, hidden = 4"), ("y + x", 0, "y = blocks"),
                ("+ x * b", 2, "x = embed"), ("[0].up", 4, "up   ="), ("embed(ids)", 6, "ids: i32")]:
            found = client.at("textDocument/definition", uri, *place(TEXT, what, skip))
            self.assertEqual([(f["range"]["start"]["line"], f["range"]["start"]["character"]) for f in found], [place(TEXT, wanted)], what)
        found, = client.at("textDocument/definition", uri, *place(TEXT, "Linear(d, hidden)"))
        self.assertIn("layer Linear(", pathlib.Path(found["uri"].removeprefix("file://")).read_text().splitlines()[found["range"]["start"]["line"]])
        found, = client.at("textDocument/definition", uri, *place(TEXT, "up.weight[0", 3))  # into the standard layer
        self.assertIn("weight weight", pathlib.Path(found["uri"].removeprefix("file://")).read_text().splitlines()[found["range"]["start"]["line"]])
        self.assertIsNone(client.at("textDocument/definition", uri, *place(TEXT, "gelu")))
        self.ends(client)

    def test_both_branches_define_a_member(self):
        text = ("model M(d = 4, wide = true) {\n  if wide { a = Linear(d, 2 * d) } else { a = Linear(d, d) }\n"
                "  forward(x: f32[n, d]) { return y = a(x) }\n}\n")
        client, uri = self.opened(text)
        found = client.at("textDocument/definition", uri, *place(text, "a(x)"))
        self.assertEqual([f["range"]["start"]["character"] for f in found], [12, 42])
        self.ends(client)

    def test_references_and_highlights(self):
        client, uri = self.opened()
        at = place(TEXT, "d, hidden = 4")
        found = client.at("textDocument/references", uri, *at, context={"includeDeclaration": True})
        self.assertEqual(len(found), 6)  # hidden = 4 * d, two layers, require, its text
        self.assertEqual(len(client.at("textDocument/references", uri, *at, context={"includeDeclaration": False})), 5)
        kinds = [h["kind"] for h in client.at("textDocument/documentHighlight", uri, *place(TEXT, "x = embed"))]
        self.assertEqual(sorted(kinds), [2, 2, 3])
        self.ends(client)

    def test_the_outline(self):
        client, uri = self.opened()
        tops = client.ask("textDocument/documentSymbol", textDocument={"uri": uri})
        self.assertEqual([t["name"] for t in tops], ["Block", "Net"])
        self.assertEqual([c["name"] for c in tops[0]["children"]], ["d", "hidden", "up", "down", "both", "forward"])
        for top in tops:
            self.assertLessEqual(top["range"]["start"]["line"], top["selectionRange"]["start"]["line"])
        self.ends(client)

    def test_completions(self):
        client, uri = self.opened()

        def labels(old, new, skip):
            text = TEXT.replace(old, new)
            client.change(uri, text, 2)
            return [i["label"] for i in client.at("textDocument/completion", uri, *place(text, new, skip))["items"]]
        names = labels("y = blocks(x)", "y = bl", 6)
        for wanted in ("blocks", "embed", "depth", "x", "ids", "batch", "Block", "Net", "Linear", "softmax", "return", "log1p"):
            self.assertIn(wanted, names)
        self.assertNotIn("up", names)  # of another layer
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(labels("y = blocks(x)", "y = blocks.", 11), ["d", "hidden", "up", "down", "both", "forward"])
        self.assertEqual(labels("y = blocks(x)", "y = blocks[0].up.we", 19), ["in_features", "out_features", "bias", "bound", "weight", "b", "forward"])
        self.assertEqual(labels("= [Block(d, hidden = 2 * d) for i in depth]", "= Block(d, hi", 13)[:2], ["d = ", "hidden = "])
        self.assertIn("TransformerEncoderLayer", labels("y = blocks(x)", "y = Transf", 10))
        self.assertEqual(labels("# Two lines.", "# Two li", 8), [])
        self.ends(client)

    def test_what_a_call_takes(self):
        client, uri = self.opened(TEXT.replace("y = blocks(x)", "y = Linear(d, bias ="))
        found = client.at("textDocument/signatureHelp", uri, *place(TEXT, "y = blocks(x)", 14))
        self.assertEqual(found["signatures"][0]["label"], "layer Linear(in_features, out_features, bias = true)")
        self.assertEqual((found["activeParameter"], len(found["signatures"][0]["parameters"])), (1, 3))
        text = TEXT.replace("y = blocks(x)", "y = softmax(x[0, 1], ")
        client.change(uri, text, 2)
        found = client.at("textDocument/signatureHelp", uri, *place(text, "softmax(x[0, 1], ", 17))
        self.assertEqual((found["signatures"][0]["label"], found["activeParameter"]), ("softmax(x, axis = -1)", 1))
        self.ends(client)

    def test_a_line_as_long_as_a_text_is_walked_once(self):
        client, uri = self.opened("ab " * (1 << 21))  # what walks it anew for each byte takes minutes: the client gives up
        for method in ("signatureHelp", "completion", "hover", "definition"):
            client.at(f"textDocument/{method}", uri, 0, 3 << 21)
        self.ends(client)

    def test_layout_and_cures_and_shapes(self):
        scattered = TEXT.replace("  up   =", " up=").replace("    x = embed(ids)", "  x=embed(ids)")
        client, uri = self.opened(scattered, options={"hints": True})
        edits = client.ask("textDocument/formatting", textDocument={"uri": uri}, options={"tabSize": 8})
        self.assertEqual(len(edits), 2)  # only lines that differ
        self.assertEqual(applied(scattered, edits), TEXT)
        hints = client.ask("textDocument/inlayHint", textDocument={"uri": uri}, range={})
        self.assertEqual([h["label"] for h in hints], [": f32[batch, time, 16]"] * 2)
        for old, new, wanted in (("embed(ids)", "embd(ids)", "embed(ids)"), ("hidden = 2", "hiden = 2", "hidden = 2"),
                                 ("Block(d, hidden = 2 * d)", "TransformerEncoderLayer(d, 2)", "EncoderLayer(d, 2)")):
            text = TEXT.replace(old, new)
            client.change(uri, text, 2)
            where = client.messages(uri, 2)
            line, character = place(text, new)
            found = client.ask("textDocument/codeAction", textDocument={"uri": uri}, context={"diagnostics": where},
                               range={"start": {"line": line, "character": character}, "end": {"line": line, "character": character}})
            self.assertEqual(applied(text, found[0]["edit"]["changes"][uri]), TEXT.replace(old, wanted))
        client.change(uri, TEXT.replace("y = blocks(x)", "y = )"), 3)
        self.assertEqual(client.refused("textDocument/formatting", textDocument={"uri": uri}, options={})["code"], -32803)
        self.ends(client)

    def lenses(self, client, uri):
        found = client.ask("textDocument/codeLens", textDocument={"uri": uri})
        self.assertEqual({lens["command"]["command"] for lens in found} - {""}, set())
        return {lens["range"]["start"]["line"]: lens["command"]["title"] for lens in found}

    def test_costs_of_lines(self):
        """Beside what `explore` has of the same lines; formulas by hand: 2 m n k, and d = 16, hidden = 32, 3 blocks."""
        text = TEXT.replace(" + x * blocks[0].up.weight[0, 0]", "")
        client, uri = self.opened(text)
        found = self.lenses(client, uri)
        shown = json.loads(subprocess.run([TFMC, "explore", self.work / "net.tfm", "--threads=1", "-march=native", "--format=json"],
                                          capture_output=True, check=True).stdout)
        steps = [step for step in shown["programs"][0]["steps"] if shown["formulas"][step["flop"]] != "0"]
        own = {line - 1 for step in steps for file, line in step["lines"] if file == 0}
        self.assertEqual(set(found), own)
        formulas = {line: title.split(", ")[0] for line, title in found.items()}
        at = lambda what: place(text, what)[0]
        self.assertEqual(formulas[at("fn both")], f"{3 * 2 * 16 * 32 / 1000:.2f} kFLOP × batch × time")
        self.assertEqual(formulas[at("forward(x) =")], f"{2 * 3 * 2 * 16 * 32 / 1000:.2f} kFLOP × batch × time")
        self.assertEqual(formulas[at("y = blocks(x)")], formulas[at("forward(x) =")])
        self.assertRegex(found[at("y = blocks(x)")], r", 100 % of the time \(batch 1, time 128\)$")
        self.assertRegex(found[at("fn both")], r", (49|50|51) % of the time ")
        for range_of in (lens["range"] for lens in client.ask("textDocument/codeLens", textDocument={"uri": uri})):
            self.assertEqual(text.splitlines()[range_of["start"]["line"]][range_of["start"]["character"] - 1], " ")
            self.assertEqual(range_of["end"]["character"], len(text.splitlines()[range_of["end"]["line"]]))
        client.tell("workspace/didChangeConfiguration", settings={"tfmc": {"define": ["depth=1"]}})
        self.assertEqual(self.lenses(client, uri)[at("fn both")].split(", ")[0], f"{2 * 16 * 32 / 1000:.2f} kFLOP × batch × time")
        client.tell("workspace/didChangeConfiguration", settings={"tfmc": {"costs": False}})
        self.assertEqual(self.lenses(client, uri), {})
        client.tell("workspace/didChangeConfiguration", settings={"tfmc": {}})
        client.change(uri, text.replace("blocks(x)", "bloks(x)"), 2)
        self.assertEqual(self.lenses(client, uri), {})
        self.assertEqual(client.refused("textDocument/codeLens", textDocument={"uri": "file:///none.tfm"})["code"], -32602)
        self.ends(client)

    def test_costs_of_lines_of_every_model(self):
        client, shown = self.client(), 0
        for path in sorted((ROOT / "models").glob("*.tfm")) + sorted((ROOT / "examples").glob("*/*.tfm")):
            uri = client.open(path)
            for line, title in self.lenses(client, uri).items():
                shown += 1
                self.assertRegex(title, r"^[\d.]+ [kMGT]?FLOP.*, (100|\d\d?|\d\.\d) % of the time", (path, line))
            client.tell("textDocument/didClose", textDocument={"uri": uri})
        self.assertGreater(shown, 400)
        self.ends(client)

    def test_costs_in_the_model_that_includes_a_file(self):
        layer, model = TEXT.split("\nmodel ")
        (self.work / "layer.tfm").write_text(layer)
        client, uri = self.opened('include "layer.tfm"\n\nmodel ' + model)
        part = client.open(self.work / "layer.tfm", layer)
        found = self.lenses(client, part)
        self.assertIn(place(layer, "fn both")[0], found)
        client.tell("textDocument/didClose", textDocument={"uri": uri})
        self.assertEqual(self.lenses(client, part), {})
        self.ends(client)

    def test_messages_come_before_costs(self):
        """Both are asked for at once, by one write."""
        client = self.client()
        text = (ROOT / "models/bert.tfm").read_text()
        opened = {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": "file:///b/bert.tfm", "languageId": "tfm",
                                                                                 "version": 1, "text": text}}}
        asked = {"id": 77, "method": "textDocument/codeLens", "params": {"textDocument": {"uri": "file:///b/bert.tfm"}}}
        order = []
        notices, answers = client.notices, client.answers
        client.notices = type("Noted", (list,), {"append": lambda _, item: (order.append("messages"), notices.append(item))})()
        client.answers = type("Noted", (dict,), {"__setitem__": lambda _, key, item: (order.append(key), answers.__setitem__(key, item))})()
        bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in (opened, asked)]
        client.raw(b"".join(b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies))
        client.wait(lambda: 77 in answers, "the answer")
        client.notices, client.answers = notices, answers
        self.assertEqual(order, ["messages", 77])
        self.ends(client)


class Rename(Lsp):
    def graph(self, path):
        shown = subprocess.run([TFMC, "dump", "--stage=graph", path], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        return shown.stdout

    def test_a_member_keeps_its_weights(self):
        client, uri = self.opened()
        before = self.graph(self.work / "net.tfm")
        text = applied(TEXT, client.at("textDocument/rename", uri, *place(TEXT, "up   ="), newName="upward")["changes"][uri])
        self.assertIn('  upward   = Linear(d, hidden) as "up"\n', text)
        self.assertIn("x -> upward -> gelu", text)
        self.assertIn("blocks[0].upward.weight", text)
        (self.work / "net.tfm").write_text(text)
        self.assertEqual(self.graph(self.work / "net.tfm"), before)
        self.ends(client)

    def test_what_would_mean_something_else_is_refused(self):
        client, uri = self.opened()
        for what, new in (("up   =", "down"), ("x = embed", "y"), ("d = 16", "depth"), ("fn both", "1st"), ("up   =", "layer"),
                          ("layer Block", "Linear"), ("x = embed", "blocks")):
            skip = {"fn both": 3, "layer Block": 6}.get(what, 0)
            line, character = place(TEXT, what, skip)
            client.refused("textDocument/rename", textDocument={"uri": uri}, position={"line": line, "character": character}, newName=new)
        for what, skip in (("Linear(d, hidden)", 0), ("forward(x)", 0), ("gelu", 0), ("# Two", 3)):
            line, character = place(TEXT, what, skip)
            self.assertEqual(client.refused("textDocument/prepareRename", textDocument={"uri": uri},
                                            position={"line": line, "character": character})["code"], -32803)
        client.change(uri, TEXT.replace("y = blocks(x)", "y = blocks(x"), 2)
        line, character = place(TEXT, "up   =")
        self.assertIn("mend it first", client.refused("textDocument/rename", textDocument={"uri": uri}, newName="w",
                                                      position={"line": line, "character": character})["message"])
        self.ends(client)

    def test_every_name_of_models_can_be_renamed_and_the_graph_is_the_same(self):
        """But for what the model shows to the outside, its inputs and sizes, whose names the graph has."""
        client, rng = self.client(), random.Random(3)
        shutil.copytree(ROOT / "models/parts", self.work / "parts")
        for source in ("models/gpt2.tfm", "models/bert.tfm", "examples/translate/model.tfm", "tests/goldens/models/hf-swin.tfm"):
            path = ROOT / source
            if not path.exists():
                continue
            text = path.read_text()
            if (path.parent / "parts").exists():
                shutil.copytree(path.parent / "parts", self.work / "parts", dirs_exist_ok=True)
            uri = client.open(self.work / "one.tfm", text)
            (self.work / "one.tfm").write_text(text)
            before = re.sub(r'"[^"]*"|%\S+', "", self.graph(self.work / "one.tfm"))
            outlines = client.ask("textDocument/documentSymbol", textDocument={"uri": uri})
            names = [s for top in outlines for s in [top, *top.get("children", [])] if s["name"] not in ("forward", top["name"])]
            done = 0
            for symbol in rng.sample(names, min(12, len(names))):
                at = symbol["selectionRange"]["start"]
                made = client.at("textDocument/rename", uri, at["line"], at["character"], newName="quite_new")
                files = {pathlib.Path(name.removeprefix("file://")): edits for name, edits in made["changes"].items()}
                texts = {file: file.read_text() for file in files}
                for file, edits in files.items():
                    file.write_text(applied(texts[file], edits))
                self.assertEqual(re.sub(r'"[^"]*"|%\S+', "", self.graph(self.work / "one.tfm")), before, (source, symbol["name"]))
                for file, whole in texts.items():
                    file.write_text(whole)
                done += 1
            self.assertGreater(done, 3, source)
            client.tell("textDocument/didClose", textDocument={"uri": uri})
        self.ends(client)


class Robust(Lsp):
    def survives(self, client, uri):
        self.assertIsNotNone(self.hover(client, uri, place(TEXT, "layer Block", 6)))

    def test_messages_that_are_none(self):
        client, uri = self.opened()
        for body in (b"", b"{", b"[]", b"17", b'"text"', b"null", b"{}", b'{"id": 1}', b'{"method": 3}', b'{"method": "x", "id": {}}',
                     b'{"method": "x", "id": [1]}', b'{"jsonrpc": "2.0", "id": 1.5, "method": "shutdown"}', b"\xff\xfe", b"\0" * 50,
                     b'[{"jsonrpc": "2.0", "id": 1, "method": "shutdown"}]', b'{"id": 1, "method": "textDocument/hover"', b"[" * 100000,
                     b'{"a":' * 100000, b"[" + b"0," * 500000 + b"0]", b'{"method": "\\ud800"}', b'{"method": "\\u0000", "id": "\\u0000"}'):
            client.send(body)
        self.survives(client, uri)
        self.assertGreater(len(client.errors), 12)
        self.assertTrue(all(error["code"] in (-32700, -32600) for error in client.errors), client.errors)
        self.ends(client)

    def test_headers(self):
        ask = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}).encode()
        for header in (b"content-length:  %d  \r\n\r\n", b"Content-Type: x; charset=utf-8\r\nContent-Length: %d\r\n\r\n", b"Content-Length: %d\n\n"):
            client = self.client(initialize=False)
            client.raw(header % len(ask) + ask)
            self.assertIn("result", client.answer(7))
            client.close()
        for header in (b"\r\n\r\n", b"Content-Length: \r\n\r\n", b"Content-Length: -5\r\n\r\n", b"Content-Length: 9223372036854775808\r\n\r\n",
                       b"Content-Length: 99999999999999999999999999\r\n\r\n", b"Content-Length: 0x10\r\n\r\n", b"Content-Length: 1e3\r\n\r\n",
                       b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", b"Content-Type: x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100000,
                       b'{"jsonrpc": "2.0"}\n' * 1000):
            client = self.client()
            client.raw(header)
            client.wait(lambda: client.at_end, f"the end after {header[:40]}")
            self.assertEqual([error["code"] for error in client.errors], [-32700], header[:40])
            self.assertEqual(client.close(), 1, header[:40])

    def test_a_message_of_100_megabytes_is_skipped(self):
        client, uri = self.opened()
        client.send(b"[" + b"1," * (50 << 20) + b"1]")
        client.send(json.dumps({"jsonrpc": "2.0", "id": 900, "method": "textDocument/hover", "params": {"text": "x" * (100 << 20)}}).encode())
        self.survives(client, uri)
        self.assertEqual([error["code"] for error in client.errors], [-32600] * 2)
        status = pathlib.Path(f"/proc/{client.process.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+)", status)[1]), 400 << 10)
        self.ends(client)

    def test_texts_that_are_too_long_or_no_text(self):
        client, uri = self.opened()
        for version, text in enumerate(["x" * (17 << 20), "#\n" * (4 << 20), "(" * 100000, "model M { forward(x: f32[n]) { return y = " + "x+" * 100000 + "x } }",
                                        "\0", "\ufeff" + TEXT, "\u202e", "if x then " * 5000, '"' + "a" * 100000, "{" * 300, "layer " * 30000], 2):
            client.change(uri, text, version)
            client.messages(uri, version)
            for method in METHODS:
                client.answer(client.begin(f"textDocument/{method}", textDocument={"uri": uri}, position={"line": 0, "character": 5}, newName="n"))
        client.change(uri, TEXT, 99)
        self.assertEqual(client.messages(uri, 99), [])
        self.ends(client)

    def test_before_and_after(self):
        client = self.client(initialize=False)
        self.assertEqual(client.refused("textDocument/hover")["code"], -32002)
        self.assertEqual(client.refused("shutdown")["code"], -32002)
        client.ask("initialize", capabilities={})
        self.assertEqual(client.refused("initialize", capabilities={})["code"], -32600)
        self.assertEqual(client.refused("workspace/symbol", query="")["code"], -32601)
        client.tell("$/setTrace", value="off")
        client.tell("never/heard/of")
        client.ask("shutdown")
        self.assertEqual(client.refused("textDocument/hover")["code"], -32600)
        self.assertEqual(client.refused("shutdown")["code"], -32600)
        client.tell("exit")
        self.assertEqual(client.close(), 0)
        early = self.client()
        early.tell("exit")
        self.assertEqual(early.close(), 1)

    def test_it_ends_with_its_editor(self):
        client, uri = self.opened()
        client.raw(b"Content-Length: 1000\r\n\r\n{")  # half a message
        self.assertEqual(client.close(), 1)
        editor = subprocess.Popen([sys.executable, "-c", ""])
        editor.wait()
        client = self.client(initialize=False)  # its input stays open
        client.ask("initialize", capabilities={}, processId=editor.pid)
        self.assertEqual(client.process.wait(timeout=60), 1)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}).encode()
        read, write = os.pipe()
        with subprocess.Popen([TFMC, "lsp"], stdin=subprocess.PIPE, stdout=write) as process:
            os.close(write)
            os.close(read)  # nobody reads
            process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            process.stdin.flush()
            self.assertEqual(process.wait(timeout=60), 1)

    def test_cancelled_requests(self):
        client, uri = self.opened()
        body = b""
        for number in range(1000, 1100):
            for message in ({"id": number, "method": "textDocument/completion",
                             "params": {"textDocument": {"uri": uri}, "position": {"line": 16, "character": 8}}},):
                data = json.dumps({"jsonrpc": "2.0", **message}).encode()
                body += b"Content-Length: %d\r\n\r\n" % len(data) + data
        data = json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1099}}).encode()
        client.raw(body + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        for number in range(1000, 1100):  # each has exactly one answer
            answer = client.answer(number)
            if number == 1099 and "error" in answer:
                self.assertEqual(answer["error"]["code"], -32800)
        client.tell("$/cancelRequest", id=12345)
        client.tell("$/cancelRequest")
        self.survives(client, uri)
        self.ends(client)

    def test_any_parameters(self):
        """Sessions whose messages have values exchanged for others."""
        client, uri = self.opened()
        rng = random.Random(11)
        values = [None, True, -1, 0, 2**63 - 1, -2**63, 1.5, "", "x", uri, "file:///", "file:///%00", "untitled:1", "file://%zz/", [], {}, [[]],
                  {"uri": uri}, {"uri": 3}, {"line": 1, "character": 1}, {"start": {"line": 0, "character": 0}}, [{"text": TEXT}], [{"range": {}, "text": ""}], "quite_new"]
        keys = ["textDocument", "position", "range", "newName", "context", "options", "contentChanges", "settings", "files", "id", "uri", "text"]
        methods = [f"textDocument/{m}" for m in METHODS + ["rename", "documentSymbol", "formatting", "codeAction", "inlayHint", "codeLens", "didOpen",
                                                           "didChange", "didSave", "didClose"]] + ["workspace/didChangeConfiguration", "workspace/didChangeWatchedFiles", "$/cancelRequest"]
        for _ in range(1500):
            message = {"jsonrpc": "2.0", "method": rng.choice(methods), "params": {key: rng.choice(values) for key in rng.sample(keys, rng.randint(0, 5))}}
            if rng.random() < 0.1:
                message["params"] = rng.choice(values)
            if rng.random() < 0.7:
                message["id"] = rng.choice([rng.randint(10**6, 10**9), f"id{rng.random()}"])
            client.send(message)
        uri = client.open(self.work / "net.tfm", TEXT)
        self.survives(client, uri)
        self.ends(client)

    def test_every_place_of_texts_that_are_being_written(self):
        rng = random.Random(4)
        client = self.client()
        paths = sorted((ROOT / "models").glob("*.tfm"))[:6] + sorted((ROOT / "tests/errors").glob("*.tfm")) + sorted((ROOT / "compiler/elaborate/std").glob("*.tfm"))
        version, numbers = 1, []
        for path in paths:
            whole = path.read_bytes().decode(errors="replace")
            uri = client.open(self.work / path.name, whole)
            for cut in sorted(rng.sample(range(len(whole)), min(5, len(whole)))):
                version += 1
                client.change(uri, whole[:cut] + rng.choice(["", "", "\n}", whole[cut + 7:], "."]), version)
                line = whole[:cut].count("\n")
                for method in METHODS:
                    position = {"line": rng.choice([line, rng.randint(0, line + 1)]), "character": rng.randint(0, 40)}
                    numbers.append(client.begin(f"textDocument/{method}", textDocument={"uri": uri}, position=position))
            client.tell("textDocument/didClose", textDocument={"uri": uri})
        for number in numbers:
            client.answer(number)
        self.ends(client)


if __name__ == "__main__":
    sys.exit(tally.run(sys.argv[:1]))
