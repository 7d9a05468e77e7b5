#!/usr/bin/env python3
"""usage: test_explore_page.py TFMC ROOT

The page of `tfmc explore` in Chromium: models of all kinds open without an error and every view shows something; what is
selected in one view is selected in all; sizes give the figures of `tfmc bench --json`, and the workspace that the data have;
links restore view, selection and sizes; nothing that a name contains is executed, and nothing is asked for from outside. Needs
Debian's chromium, chromium-driver and python3-selenium. The last line is 'N passed, N failed'.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tally

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.argv[1:] = sys.argv[3:]
VIEWS = ["source", "map", "steps", "memory", "code", "passes"]

EMPTY = "model Empty { forward(x: f32[batch, 4]) { return y = x } }\n"
MANY = "model Many { forward(x: f32[batch, 4]) { return " + ", ".join(f"y{i} = x + {i}" for i in range(1000)) + " } }\n"
REFUSED = """layer Odd(d) {
  q = Linear(d, d)
  forward(x) = softmax(q(x) @ transpose(x, -1, -2), axis = 0) @ x
}
model Refused(d = 8) { odd = Odd(d) forward(x: f32[time, 8]) { return y = odd(x) } }
"""
HOSTILE = """# </script><script>window.hacked = 1</script>
layer L(n) {
  weight w: [n, n] as "</script><img src=x onerror=window.hacked=1>.__proto__.constructor"
  forward(x) = x @ w
}
model __proto__(n = 4) {
  l = L(n)
  constructor = Linear(n, n)
  forward(x: f32[batch, n]) { require batch < 1000, "</script><svg onload=window.hacked=1>" return y = constructor(l(x)) }
}
"""
DEEP = """layer Block(d) {
  norm = LayerNorm(d)
  up   = Linear(d, 2 * d)
  down = Linear(2 * d, d)
  forward(x) = x + down(gelu(up(norm(x))))
}
model Deep(d = 16, depth = 48) { layers = depth * Block(d) forward(x: f32[batch, time, d]) { return y = layers(x) } }
"""
# name, text or file, options
MODELS = [("minilm", "examples/minilm/minilm.tfm", ["-D", "depth=2"]),
          ("dates", "examples/dates/dates.tfm", []),
          ("gpt2", "models/gpt2.tfm", ["-D", "depth=2", "-D", "vocab=100"]),
          ("marian", "examples/translate/marian.tfm", ["-D", "encoder_depth=1", "-D", "decoder_depth=1"]),
          ("llama", "models/llama.tfm", ["-D", "depth=2"]),
          ("t5", "models/t5.tfm", ["-D", "depth=2", "-D", "decoder_depth=2"]),
          ("moe", "models/moe.tfm", ["-D", "depth=2"]),
          ("deep", DEEP, []),
          ("modernbert", "models/modernbert.tfm", ["-D", "depth=3"]),
          ("refused", REFUSED, []), ("empty", EMPTY, []), ("many", MANY, []), ("hostile", HOSTILE, [])]


def browser(folder):
    """None where there is no browser; `folder` is where it has its temporary files, some of which it leaves behind."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not all(pathlib.Path("/usr/bin", name).exists() for name in ("chromium", "chromedriver")):
        return None
    options.binary_location = "/usr/bin/chromium"
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver", env=os.environ | {"TMPDIR": folder}), options=options)
    driver.set_script_timeout(300)  # on a machine that does much else
    return driver


@functools.cache
def page_of(name, folder):
    text, options = next((text, options) for other, text, options in MODELS if other == name)
    file, page = ROOT / text, pathlib.Path(folder, f"{name}.html")
    if "{" in text:
        file = pathlib.Path(folder, f"{name}.tfm")
        file.write_text(text)
    subprocess.run([TFMC, "explore", file, "-march=x86-64-v3", "--threads=2", "-o", page, *options], check=True)
    return page


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.driver = browser(cls.folder.name)
        if not cls.driver:
            cls.folder.cleanup()
            raise unittest.SkipTest("no chromium, chromium-driver or python3-selenium")

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

    def open(self, name, hash=""):
        page = page_of(name, self.folder.name)
        self.driver.get("about:blank")
        self.driver.get(f"file://{page}{hash}")
        self.assertEqual(self.js("return document.documentElement.dataset.ready"), "1", name)
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"], [], name)
        return json.loads(self.js("return document.getElementById('tfm-data').textContent"))

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def show(self, view):
        self.js("document.querySelector(`button[role=tab][data-for=${arguments[0]}]`).click()", view)

    def total(self, name):
        text = self.js("return document.querySelector(`[data-total=${arguments[0]}]`).getAttribute('data-value')", name)
        return float(text) if text else None

    def set_input(self, selector, value):
        self.js("const input = document.querySelector(arguments[0]); input.value = String(arguments[1]);"
                "input.dispatchEvent(new Event('input'))", selector, value)

    def selected(self, view):
        return set(self.js("return [...document.querySelectorAll(`section[data-view=${arguments[0]}] [data-thing]`)]"
                           ".filter((node) => node.getAttribute('aria-selected') === 'true')"
                           ".map((node) => node.dataset.thing)", view))

    def click(self, view, thing):
        self.js("document.querySelector(`section[data-view=${arguments[0]}] [data-thing=\"${arguments[1]}\"]`)"
                ".dispatchEvent(new MouseEvent('click', { bubbles: true }))", view, thing)

    def test_every_model_opens_and_every_view_shows_something(self):
        for name, _, _ in MODELS:
            with self.subTest(name):
                data = self.open(name)
                self.assertRegex(self.js("return document.documentElement.dataset.openMs"), r"^\d+$")
                for view in VIEWS:
                    self.show(view)
                    shown = self.js("const view = document.querySelector(`section[data-view=${arguments[0]}]`);"
                                    "return [view.hidden, view.offsetHeight, view.textContent.trim().length]", view)
                    self.assertFalse(shown[0])
                    self.assertGreater(min(shown[1:]), 8, view)
                    tab = self.js("const tab = document.querySelector(`button[data-for=${arguments[0]}]`);"
                                  "return [tab.ariaSelected, tab.getAttribute('aria-controls')]", view)
                    self.assertEqual(tab, ["true", f"view-{view}"])
                self.assertEqual(len(data["programs"]), self.js("return document.querySelectorAll('#program option').length"))
                for p in range(len(data["programs"])):
                    self.js("const p = document.getElementById('program'); p.value = arguments[0];"
                            "p.dispatchEvent(new Event('change'))", str(p))
                    self.show("steps")
                    flops = self.js("return [...document.querySelectorAll('section[data-view=steps] tr[data-flop]')]"
                                    ".map((row) => Number(row.dataset.flop))")
                    self.assertEqual(len(flops), len(data["programs"][p]["steps"]))
                    self.assertEqual(sum(flops), self.total("flop_run"))
                self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"], [])
                self.assertIsNone(self.js("return window.hacked || null"))

    def test_a_selection_holds_in_all_views_and_back(self):
        data = self.open("minilm")
        for view in VIEWS:
            self.show(view)
        program = data["programs"][0]
        step = next(i for i, each in enumerate(program["steps"]) if each["op"] == "attention")
        lines = {"line:{}:{}".format(*place) for place in program["steps"][step]["lines"]}
        self.click("steps", f"step:0.{step}")
        self.assertLessEqual(lines, self.selected("source") | {line for line in lines if "line:1" in line})
        self.assertTrue(self.selected("memory") and self.selected("code"))
        own = next(line for line in sorted(lines) if line.startswith("line:0"))
        for line in sorted(lines):
            self.click("source", line)
            self.assertIn(f"step:0.{step}", self.selected("steps"))
        fusion = next(n for n, each in enumerate(data["fusions"]) if each["fusion"] == "attention")
        self.show("source")
        self.click("source", f"fusion:{fusion}")
        self.assertIn(f"step:0.{step}", self.selected("steps"))
        self.assertIn("line:{}:{}".format(data["fusions"][fusion]["file"], data["fusions"][fusion]["line"]), self.selected("source"))
        self.assertTrue(own)
        kernel = program["steps"][step]["kernels"][0]
        self.click("code", f"kernel:{kernel}")
        self.assertIn(f"step:0.{step}", self.selected("steps"))
        buffer = next(n for n, each in enumerate(program["buffers"]) if each["first"] == step)
        self.click("memory", f"buffer:0.{buffer}")
        self.assertEqual({f"step:0.{step}"}, self.selected("steps"))

    def test_refusals_are_marks_with_their_reason(self):
        data = self.open("refused", "#view=source")
        marks = self.js("return [...document.querySelectorAll('section[data-view=source] [data-thing^=\"fusion:\"]')]"
                        ".map((node) => [node.dataset.thing, node.dataset.done, node.title])")
        refused = {n: each for n, each in enumerate(data["fusions"]) if not each["done"]}
        self.assertTrue(refused)
        for thing, done, title in marks:
            fusion = data["fusions"][int(thing.split(":")[1])]
            self.assertEqual(done, "1" if fusion["done"] else "0")
            self.assertIn(fusion["reason"], title)
        self.assertEqual({int(thing.split(":")[1]) for thing, done, _ in marks if done == "0"}, set(refused))

    def test_sizes_give_the_figures_of_bench(self):
        self.open("minilm")
        options = next(options for name, _, options in MODELS if name == "minilm")
        for batch, time in ((1, 33), (3, 128)):
            bench = json.loads(subprocess.run(
                [TFMC, "bench", ROOT / "examples/minilm/minilm.tfm", "--random-weights=1", "--json", "--iterations=1", "--warmup=0",
                 "--threads=2", "-march=x86-64-v3", f"--input=input_ids={batch}x{time}",
                 f"--input=attention_mask={batch}x{time}", *options], capture_output=True, text=True, check=True).stdout)
            self.set_input("input[data-size=batch]", batch)
            self.set_input("input[data-size=time]", time)
            for name in ("flop_per_second", "int8_flop_per_second", "bytes_per_second"):
                self.set_input(f"input[data-machine={name}]", bench["machine_" + name])
            for name in ("flop", "int8_flop", "weight_bytes"):
                self.assertEqual(self.total(name), bench[name], name)
            self.assertAlmostEqual(self.total("roofline_seconds"), bench["roofline_seconds"], delta=2e-9)

    def test_sizes_give_the_workspace_of_each_stop(self):
        for name in ("minilm", "gpt2"):
            data = self.open(name)
            program = data["programs"][0]
            for key, wanted in list(program["workspace"]["2"].items())[::7]:
                for size, at in zip(program["sizes"], map(int, key.split(","))):
                    self.set_input(f'input[data-size="{size["name"]}"]', size["stops"][at])
                self.assertEqual(self.total("workspace_bytes"), wanted)

    def test_the_placing_of_the_page_is_that_of_the_runtime(self):
        for name in ("minilm", "gpt2", "moe"):
            data = self.open(name, "#view=memory&threads=1")
            program = data["programs"][0]
            for key in list(program["scratch"])[::9]:
                for size, at in zip(program["sizes"], map(int, key.split(","))):
                    self.set_input(f'input[data-size="{size["name"]}"]', size["stops"][at])
                placed = int(self.js("return document.querySelector('[data-placed]').dataset.placed"))
                self.assertEqual(placed + program["scratch"][key], program["workspace"]["1"][key], (name, key))

    def test_links_restore_all_and_back_works(self):
        self.open("dates", "#view=steps&p=1&sel=step:1.3&size.source=77&threads=1")
        state = ("return [document.querySelector('[role=tab][aria-selected=true]').dataset.for,"
                 "document.getElementById('program').value, document.querySelector('#views .chosen').dataset.thing,"
                 "document.querySelector('input[data-size=source]').value,"
                 "document.querySelector('input[data-size=threads]').value]")
        first = ["steps", "1", "step:1.3", "77", "1"]
        self.assertEqual(self.js(state), first)
        self.click("steps", "step:1.5")
        second = self.js("return location.hash")
        self.assertIn("sel=step:1.5", second)
        self.assertIn("size.source=77", second)
        self.driver.back()
        self.assertEqual(self.js(state), first)
        self.open("dates", second)
        self.assertEqual(self.js(state), ["steps", "1", "step:1.5", "77", "1"])

    def test_the_largest_size_that_fits_is_found(self):
        self.open("minilm")
        self.set_input("#most-bytes", 90)
        answer = self.js("return document.getElementById('largest-bytes').textContent")
        self.assertRegex(answer, r"batch \d+[^,]*, or time \d+")
        time = int(answer.split("time ")[1].split(" ")[0])
        data = json.loads(self.js("return document.getElementById('tfm-data').textContent"))
        before = sum(weight["bytes"] for module in data["modules"] for weight in module["weights"])
        self.assertGreater(before, self.total("weight_bytes"))  # tables of words are in memory, too
        self.set_input("input[data-size=time]", time)
        used = before + self.total("workspace_bytes") + self.total("io_bytes")
        self.assertLessEqual(used, 90e6)
        self.set_input("#most-bytes", 30)
        self.assertEqual(self.js("return document.getElementById('largest-bytes').textContent"),
                         "→ batch does not fit, or time does not fit")

    def test_keys_reach_everything(self):
        from selenium.webdriver.common.keys import Keys
        self.open("minilm", "#view=source")
        active = lambda: self.driver.switch_to.active_element
        self.js("document.querySelector('button[role=tab][data-for=source]').focus()")
        for view in ("map", "steps"):
            active().send_keys(Keys.ARROW_RIGHT)
            self.assertEqual(self.js("return document.activeElement.dataset.for"), view)
        self.js("document.querySelector('section[data-view=steps] tr[data-thing]').focus()")
        active().send_keys(Keys.ENTER)
        self.assertEqual(self.js("return document.querySelector('#views .chosen').dataset.thing"), "step:0.0")
        active().send_keys(Keys.ESCAPE)
        self.assertIsNone(self.js("return document.querySelector('#views .chosen')"))
        active().send_keys("/")
        self.assertEqual(self.js("return document.activeElement.id"), "search")
        active().send_keys("attention")
        self.assertTrue(self.js("return document.querySelector('#views .chosen') !== null"))
        self.js("document.activeElement.blur(); document.body.focus()")
        self.driver.find_element("css selector", "body").send_keys("?")
        self.assertFalse(self.js("return document.getElementById('keys').hidden"))

    def test_the_map_opens_modules_and_selects_operations(self):
        data = self.open("minilm", "#view=map")
        boxes = "return [...document.querySelectorAll('section[data-view=map] .box')].map((box) => box.dataset.thing || '')"
        module = next(thing for thing in self.js(boxes) if thing.startswith("module:"))
        self.click("map", module)
        self.assertNotEqual(self.js("return document.querySelector('section[data-view=map] .path').textContent"), "MiniLM")
        step = next(i for i, each in enumerate(data["programs"][0]["steps"]) if each["op"] == "attention")
        self.show("steps")
        self.click("steps", f"step:0.{step}")
        op = data["programs"][0]["steps"][step]["ops"][0]
        self.assertIn(f"op:0.{op}", self.selected("map"))
        self.show("map")
        self.click("map", f"op:0.{op}")
        self.assertIn(f"step:0.{step}", self.selected("steps"))
        self.assertTrue(self.js("return document.querySelector('section[data-view=map] [role=tree] [role=treeitem]') !== null"))

    def boxes(self):
        """Of the map: thing, kind and place of each box."""
        return self.js("return [...document.querySelectorAll('section[data-view=map] .box')].map((box) => {"
                       "const r = box.querySelector('rect').getBoundingClientRect();"
                       "return [box.dataset.thing || '', box.classList.contains('open'), r.left, r.top, r.right, r.bottom] })")

    def check_places(self, boxes):
        """Boxes lie beside each other or within an open one."""
        for i, (a, a_open, *p) in enumerate(boxes):
            for b, b_open, *q in boxes[i + 1:]:
                apart = p[2] <= q[0] + 1 or q[2] <= p[0] + 1 or p[3] <= q[1] + 1 or q[3] <= p[1] + 1
                inside = lambda x, y: x[0] >= y[0] and x[1] >= y[1] and x[2] <= y[2] and x[3] <= y[3]
                self.assertTrue(apart or (a_open and inside(q, p)) or (b_open and inside(p, q)), (a, b, p, q))

    def test_modules_open_in_their_place(self):
        for name in ("t5", "gpt2"):
            self.open(name, "#view=map")
            for _ in range(9):
                closed = self.js("const one = document.querySelector('section[data-view=map] .opener[aria-expanded=false]');"
                                 "if (one) one.dispatchEvent(new MouseEvent('click', { bubbles: true })); return one !== null")
                if not closed:
                    break
            boxes = self.boxes()
            self.assertGreater(sum(box[1] for box in boxes), 5)
            self.check_places(boxes)
            self.js("document.querySelector('section[data-view=map] .opener[aria-expanded=true]')"
                    ".dispatchEvent(new MouseEvent('click', { bubbles: true }))")
            self.assertLess(len(self.boxes()), len(boxes))

    def test_the_map_shows_what_is_selected_in_any_of_equal_layers_at_each_level(self):
        data = self.open("gpt2", "#view=map")
        program = data["programs"][0]
        steps = [i for i, each in enumerate(program["steps"]) if each["op"] == "attention"]
        self.assertEqual(len(steps), 2)
        for step in steps:
            [op] = program["steps"][step]["ops"]
            for level, thing in (("fused", f"op:0.{op}"), ("plan", f"step:0.{step}"), ("primitive", f"op:0.{op}")):
                self.js("const level = document.querySelector('section[data-view=map] select');"
                        "level.value = arguments[0]; level.dispatchEvent(new Event('change'))", level)
                self.js("location.hash = arguments[0]", f"#view=map&sel=step:0.{step}")
                self.js("return new Promise((done) => setTimeout(done, 30))")
                shown = [box[0] for box in self.boxes()]
                self.assertIn(thing, shown, level)
                self.check_places(self.boxes())

    def test_the_tree_of_modules_opens_at_the_selection(self):
        data = self.open("minilm", "#view=map")
        step = next(i for i, each in enumerate(data["programs"][0]["steps"]) if each["op"] == "attention")
        module = data["programs"][0]["steps"][step]["module"]
        place = ("const node = document.querySelector(`[role=tree] [data-thing=\"module:${arguments[0]}\"]`);"
                 "const frame = document.querySelector('[role=tree]').getBoundingClientRect();"
                 "const box = node ? node.getBoundingClientRect() : null;"
                 "return box && [box.height > 0, box.top >= frame.top - 1, box.bottom <= frame.bottom + 1]")
        self.assertIsNone(self.js(place, module))
        self.js("location.hash = arguments[0]", f"#view=map&sel=step:0.{step}")
        self.js("return new Promise((done) => setTimeout(done, 30))")
        self.assertEqual(self.js(place, module), [True, True, True])
        signs = self.js("return [...document.querySelectorAll('[role=tree] [role=treeitem][aria-expanded]')].map((item) =>"
                        "[item.getAttribute('aria-expanded'), item.querySelector(':scope > .toggle').textContent])")
        self.assertEqual({tuple(sign) for sign in signs} - {("true", "▾"), ("false", "▸")}, set())

    def test_lists_of_the_selection_are_in_order(self):
        self.open("minilm", "#view=steps&sel=kernel:0")
        for kind in ("step", "line", "buffer"):
            things = self.js("return [...document.querySelectorAll(`#selection button[data-thing^=\"${arguments[0]}:\"]`)]"
                             ".map((button) => button.dataset.thing.split(/[:.]/).slice(1).map(Number))", kind)
            self.assertEqual(things, sorted(things))
        self.assertTrue(things)

    def test_a_change_of_a_pass_is_marked_alone_and_has_its_reason(self):
        data = self.open("gpt2", "#view=passes")
        groups = ("return [...document.querySelectorAll('section[data-view=passes] .pass .group')]"
                  ".map((group) => [group.getAttribute('aria-selected'), group.textContent])")
        self.js("document.querySelectorAll('section[data-view=passes] .pass .group')[2].click()")
        self.assertEqual([n for n, (selected, _) in enumerate(self.js(groups)) if selected == "true"], [2])
        self.assertIn("sel=module:", self.js("return location.hash"))
        fusion = next(n for n, each in enumerate(data["fusions"]) if each["fusion"] == "attention" and each["program"] == 0)
        self.js("location.hash = arguments[0]", f"#view=passes&sel=fusion:{fusion}")
        self.js("return new Promise((done) => setTimeout(done, 30))")
        marked = [text for selected, text in self.js(groups) if selected == "true"]
        self.assertTrue(marked)
        for text in marked:
            self.assertIn(data["fusions"][fusion]["reason"], text)

    def test_the_map_marks_what_a_pass_changed(self):
        data = self.open("gpt2", "#view=passes")
        button = "document.querySelector('section[data-view=passes] [data-map-of=\"fuse-attention\"]')"
        marked = ("return [...document.querySelectorAll('section[data-view=map] .box.' + arguments[0])]"
                  ".map((box) => box.querySelector('.sign').textContent + box.querySelector('text').textContent)")
        self.js(f"{button}.click()")
        self.assertFalse(self.js("return document.querySelector('section[data-view=map]').hidden"))
        self.assertEqual([text[:10] for text in self.js(marked, "added") if "attention" in text], ["+attention"])
        self.js("const level = document.querySelector('section[data-view=map] select');"
                "level.value = 'primitive'; level.dispatchEvent(new Event('change'))")
        self.assertIn("−softmax", self.js(marked, "removed"))
        self.assertIn("fuse-attention", self.js("return document.querySelector('.change-on-map').textContent"))
        self.js("document.querySelector('.change-on-map button').click()")
        self.assertEqual(self.js(marked, "removed"), [])
        self.assertTrue(self.js("return document.querySelector('.change-on-map').hidden"))
        self.assertEqual(len(data["programs"]), 2)

    def test_measured_times_stand_beside_those_that_are_expected(self):
        page = pathlib.Path(self.folder.name, "measured.html")
        file = pathlib.Path(self.folder.name, "measured.tfm")
        file.write_text(DEEP)
        subprocess.run([TFMC, "explore", file, "-D", "depth=2", "-march=native", "--threads=1", "--profile", "--iterations=2",
                        "--warmup=0", "-o", page], check=True)
        self.driver.get(f"file://{page}#view=steps")
        data = json.loads(self.js("return document.getElementById('tfm-data').textContent"))
        self.assertEqual(self.total("measured_seconds"), data["runs"][0]["median_seconds"])
        self.assertEqual(self.total("roofline_seconds") > 0, True)
        heads = self.js("return [...document.querySelectorAll('section[data-view=steps] thead th')].map((th) => th.textContent)")
        self.assertIn("measured", heads)
        cells = ("return [...document.querySelectorAll('section[data-view=steps] tr[data-flop]')]"
                 ".map((row) => row.children[arguments[0]].textContent)")
        self.assertTrue(all(text.endswith("s") for text in self.js(cells, heads.index("measured"))))
        self.assertGreater(len(self.js("return [...document.querySelectorAll('.measured')]")), 2)
        self.set_input("input[data-size=time]", 3)
        self.assertIsNone(self.total("measured_seconds"))
        self.assertEqual(set(self.js(cells, heads.index("measured"))), {"–"})
        self.set_input("input[data-size=time]", data["runs"][-1]["sizes"][1])
        self.assertEqual(self.total("measured_seconds"), data["runs"][-1]["median_seconds"])
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"], [])

    def test_a_profile_is_this_page_at_its_steps(self):
        page, file = pathlib.Path(self.folder.name, "profile.html"), pathlib.Path(self.folder.name, "profiled.tfm")
        file.write_text(DEEP)
        subprocess.run([TFMC, "profile", file, "-D", "depth=2", "--threads=1", "--random-weights=1", "--input=x=2x5x16", "--iterations=2",
                        "--warmup=0", "--format=html", "-o", page], check=True)
        self.driver.get(f"file://{page}")
        data = json.loads(self.js("return document.getElementById('tfm-data').textContent"))
        self.assertEqual(data["runs"][0]["sizes"], [2, 5])
        self.assertFalse(self.js("return document.querySelector('section[data-view=steps]').hidden"))
        self.assertEqual(self.total("measured_seconds"), data["runs"][0]["median_seconds"])
        steps = self.js("return [...document.querySelectorAll('.spans [data-thing^=\"step:\"]')].map((span) => span.dataset.thing)")
        self.assertEqual(steps, [f"step:0.{n}" for n, step in enumerate(data["programs"][0]["steps"]) if step["measured"]])
        named = self.js("return [...document.querySelectorAll('.spans [data-module]')].map((span) => span.dataset.module)")
        self.assertLessEqual({"layers.0", "layers.1.up"}, {data["modules"][int(module)]["path"] for module in named})
        self.js("document.querySelector('.spans [data-module=\"1\"]').dispatchEvent(new MouseEvent('click'))")
        self.assertIn("sel=module:1", self.js("return location.hash"))
        self.js("location.hash = '#view=source'")
        self.js("return new Promise((done) => setTimeout(done, 30))")
        self.assertFalse(self.js("return document.querySelector('section[data-view=source]').hidden"))

    def test_both_models_of_a_comparison_are_measured(self):
        page, file = pathlib.Path(self.folder.name, "both.html"), pathlib.Path(self.folder.name, "both.tfm")
        file.write_text(DEEP)
        subprocess.run([TFMC, "explore", file, "-D", "depth=2", "-march=native", "--threads=1", "--profile", "--iterations=2", "--warmup=0",
                        "--compare", file, "--compare-with=-D depth=3", "-o", page], check=True)
        self.driver.get(f"file://{page}#view=compare")
        compared = json.loads(self.js("return document.getElementById('tfm-data').textContent"))["compare"]
        cell = "return document.querySelectorAll('[data-compared=measured_seconds] td')[arguments[0]].dataset.value"
        self.assertEqual(float(self.js(cell, 0)), self.total("measured_seconds"))
        self.assertEqual(float(self.js(cell, 1)), compared["runs"][0]["median_seconds"])
        [group] = compared["groups"]
        self.assertEqual(group["nanoseconds"][0], 0)
        self.assertGreater(group["nanoseconds"][1], 0)
        self.assertIn("measured 0 ns →", self.js("return document.querySelector('section[data-view=compare] .group').textContent"))

    def test_steps_are_grouped_by_layer(self):
        data = self.open("deep", "#view=steps")
        self.js("const group = document.querySelector('section[data-view=steps] select'); group.value = 'layer';"
                "group.dispatchEvent(new Event('change'))")
        names = self.js("return [...document.querySelectorAll('section[data-view=steps] tr.group button')].map((b) => b.textContent)")
        self.assertEqual(sum("layers." in name for name in names), 48)
        self.assertEqual(self.js("return document.querySelectorAll('section[data-view=steps] tr[data-flop]').length"),
                         len(data["programs"][0]["steps"]))
        visible = "return [...document.querySelectorAll('section[data-view=steps] tr[data-flop]')].filter((row) => !row.hidden).length"
        self.assertEqual(self.js(visible), 0)
        self.js("document.querySelector('section[data-view=steps] tr.group button').click()")
        self.assertGreater(self.js(visible), 0)

    def test_another_model_is_compared(self):
        page = pathlib.Path(self.folder.name, "compared.html")
        subprocess.run([TFMC, "explore", ROOT / "examples/minilm/minilm.tfm", "-D", "depth=2", "-march=x86-64-v3", "-o", page,
                        "--compare", ROOT / "examples/minilm/minilm.tfm", "--compare-with=-D depth=3"], check=True)
        self.driver.get(f"file://{page}#view=compare")
        self.assertEqual(self.js("return document.querySelectorAll('section[data-view=compare] .group').length"), 1)
        self.show("map")
        self.assertTrue(self.js("return document.querySelector('section[data-view=map] .box .sign') !== null"))
        self.show("compare")
        value = lambda at: float(self.js("return document.querySelectorAll('[data-compared=flop] td')[arguments[0]].dataset.value", at))
        self.assertEqual(value(0), self.total("flop"))
        before = value(1)
        self.assertGreater(before, value(0))
        self.set_input("input[data-size=batch]", 2)
        self.assertEqual(value(1), 2 * before)
        self.driver.find_element("css selector", "section[data-view=compare] .group").click()
        self.assertTrue(self.js("return location.hash").count("sel=module:"))
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"], [])

    def compared(self, name, file, options, *others):
        """Texts of the differences that the page shows."""
        page = pathlib.Path(self.folder.name, f"{name}.html")
        subprocess.run([TFMC, "explore", file, "-march=x86-64-v3", "-o", page, *options, *others], check=True)
        self.driver.get("about:blank")
        self.driver.get(f"file://{page}#view=compare")
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"], [])
        return self.js("return [...document.querySelectorAll('section[data-view=compare] .group')].map((group) => group.textContent)")

    def test_equal_changes_of_layers_are_one_entry(self):
        bert, small = ROOT / "models/bert.tfm", ["-D", "vocab=90", "-D", "d=48", "-D", "heads=4", "-D", "ffn=64"]
        same = " ".join(small)
        group, = self.compared("relu", bert, small, "--compare", bert, f'--compare-with={same} -D act="relu"')
        self.assertIn("× 12: changed", group)
        self.assertIn("- gelu", group)
        self.assertIn("+ relu", group)
        self.show("passes")
        self.set_input("section[data-view=passes] input[type=search]", "fuse-attention")
        groups = self.js("return [...document.querySelectorAll('section[data-view=passes] .group')].map((group) => group.textContent)")
        self.assertEqual([" × 12 " in group for group in groups], [True])
        group, = self.compared("thirteen", bert, small, "--compare", bert, f"--compare-with={same} -D depth=13")
        self.assertIn("in the other alone", group)
        deep, silu = pathlib.Path(self.folder.name, "here.tfm"), pathlib.Path(self.folder.name, "there.tfm")
        deep.write_text(DEEP)
        silu.write_text(DEEP.replace("gelu", "silu"))
        group, = self.compared("silu", deep, [], "--compare", silu)
        self.assertIn("× 48: changed", group)
        moe = ROOT / "models/moe.tfm"
        tiny = "-D vocab=60 -D d=32 -D heads=4 -D kv_heads=2 -D ffn=48 -D experts=4 -D depth="
        group, = self.compared("fewer", moe, f"{tiny}3".split(), "--compare", moe, f"--compare-with={tiny}2")
        self.assertIn("in this one alone", group)

    def test_long_lists_of_changes_have_equal_lines_once(self):
        data = self.open("moe", "#view=passes")
        longest = max((group for each in data["passes"] if each["program"] == 0 for group in each["groups"]), key=lambda g: len(g["after"]))
        self.assertGreater(len(longest["after"]), len(set(longest["after"])))
        lists = self.js("return [...document.querySelectorAll('section[data-view=passes] .pass .group')]"
                        ".map((group) => [...group.querySelectorAll('.came')].map((line) => line.textContent))")
        wanted = [f"+ {text}" + (f" (× {longest['after'].count(text)})" if longest["after"].count(text) > 1 else "")
                  for text in dict.fromkeys(longest["after"])]
        self.assertIn(wanted, lists)

    def test_code_begins_with_the_dearest_step_and_numbers_can_be_read(self):
        data = self.open("minilm", "#view=code")
        program, sizes = data["programs"][0], {size["name"]: size["default"] for size in data["programs"][0]["sizes"]}
        times = [0 if step["prepare"] else eval(data["formulas"][step["time_ns"]], {}, dict(sizes)) for step in program["steps"]]
        step = program["steps"][times.index(max(times))]
        self.assertEqual(self.js("return document.querySelector('.kernel h2').textContent"), data["kernels"][step["kernels"][0]]["name"])
        norm = next(n for n, kernel in enumerate(data["kernels"]) if kernel["spec"].startswith("row layer_norm"))
        self.assertIn("eps 0x1.", data["kernels"][norm]["spec"])
        self.click("code", f"kernel:{norm}")
        self.assertIn("eps 1e-12", self.js("return document.querySelector('.kernel .spec').textContent"))
        names = self.js("return [...document.querySelectorAll('.kernel-name')].map((cell) => cell.textContent)")
        self.assertIn("row pointwise: add, gelu", names)
        self.assertEqual(len({name for name in names if name.startswith("row")}), sum(name.startswith("row") for name in names))

    def test_a_line_that_nothing_was_made_of_says_so(self):
        data = self.open("minilm", "#view=source")
        empty = next(n for n, line in enumerate(data["files"][0]["text"].split("\n"), 1) if line.startswith("#"))
        self.click("source", f"line:0:{empty}")
        self.assertIn("nothing that runs", self.js("return document.getElementById('selection').textContent"))

    def test_what_a_run_leaves_out_is_said_where_it_is_counted(self):
        said = "return (document.querySelector('.left-out') || { textContent: '' }).textContent"
        for name, words in (("moe", "the rows that chose it"), ("minilm", "padding"), ("deep", "")):
            self.open(name)
            self.assertIn(words, self.js(said))
            self.assertEqual(bool(words), bool(self.js(said)))

    def test_code_is_unpacked(self):
        data = self.open("minilm", "#view=code&sel=kernel:0")
        kernel = data["kernels"][0]
        from selenium.webdriver.support.ui import WebDriverWait
        WebDriverWait(self.driver, 10).until(lambda _: self.js("return document.querySelector('.asm') !== null"))
        self.assertIn(kernel["name"], self.js("return document.querySelector('.asm').textContent"))

    def test_nothing_is_asked_for(self):
        self.driver.get_log("performance")
        self.open("hostile")
        for view in VIEWS:
            self.show(view)
        asked = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
        self.assertTrue(all(url.startswith(("file:", "about:", "blob:")) for url in urls), urls)

    def test_it_fits_into_narrow_windows(self):
        for width in (360, 500, 1400, 3840):
            self.resize(width)
            self.open("minilm")
            for view in VIEWS:
                self.show(view)
                over = self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                self.assertLessEqual(over, 0, (width, view))
        self.resize(None)

    def resize(self, width):
        """Chromium's windows are not narrower than 500: a smaller width is an emulated one. None: as it was."""
        if width is None:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        else:
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False})

    def test_a_narrow_window_folds_the_controls_and_says_what_is_cut(self):
        self.addCleanup(self.resize, None)
        self.resize(360)
        self.open("minilm", "#view=steps")
        self.assertFalse(self.js("return document.querySelector('#sizes > details').open"))
        self.assertRegex(self.js("return document.getElementById('folded').textContent"), r"batch 1, time \d+, 2 threads: at best .*s, work")
        self.assertLess(self.js("return document.getElementById('views').getBoundingClientRect().top"), 300)
        cut = ("return new Promise((done) => setTimeout(() => done("
               "document.querySelector('section[data-view=steps] .scroll').classList.contains('cut')), 100))")
        self.assertTrue(self.js(cut))
        self.js("document.querySelector('section[data-view=steps] .scroll').scrollLeft = 1e6")
        self.assertFalse(self.js(cut))
        self.resize(1400)
        self.assertFalse(self.js(cut))
        self.assertTrue(self.js("return document.querySelector('#sizes > details').open"))


if __name__ == "__main__":
    sys.exit(tally.run())
