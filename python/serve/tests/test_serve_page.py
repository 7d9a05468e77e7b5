"""The page in a browser: search, ranks, texts with a seed and with a schema, live numbers, a key; no request elsewhere, and
nothing that the browser complains of. Left out, with a word, without playwright and a Chromium that is installed."""
import importlib.util
import json
import pathlib
import shutil
import tempfile
import time
import unittest

from servers import Case, Inside

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = importlib.util.find_spec("playwright") is None or BROWSER is None
WAIT = 120  # seconds
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["bob", "tom"]}}, "required": ["name"], "additionalProperties": False}


def until(page, expression):
    """Waits until it is true; a page's policy forbids the browser to wait for an expression."""
    end = time.monotonic() + WAIT
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise AssertionError(f"not true: {expression}")
        page.wait_for_timeout(50)


@unittest.skipIf(MISSING, "not run: playwright or a Chromium is missing")
class Page(Case):
    @classmethod
    def setUpClass(cls):
        from playwright.sync_api import sync_playwright
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        keys = pathlib.Path(folder.name) / "keys"
        keys.write_text("ann " + "k" * 40 + "\n")
        keys.chmod(0o600)
        cls.server = cls.started(Inside("embed", "rerank", "bytes"))
        cls.guarded = cls.started(Inside("embed", api_key_file=keys))
        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        cls.browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def opened(self, server, **options):
        """The page of a server; what it asks for and what the browser complains of is looked at in the end."""
        context = self.browser.new_context(**options)
        self.addCleanup(context.close)
        page, asked, complaints = context.new_page(), [], []
        page.set_default_timeout(1000 * WAIT)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.goto(f"http://127.0.0.1:{server.port}/")
        until(page, "document.getElementById('state').textContent.startsWith('version')")

        def check():
            self.assertEqual(complaints, [])
            self.assertTrue(asked)
            for url in asked:
                self.assertTrue(url.startswith(f"http://127.0.0.1:{server.port}/"), url)
        return page, check

    def write(self, page):
        page.click("#go")
        until(page, "!document.getElementById('go').disabled")
        return page.text_content("#written")

    def test_search_and_ranks(self):
        page, check = self.opened(self.server)
        self.assertEqual(page.locator("#models tbody tr").count(), 3)
        page.fill("#question", "a b")
        page.fill("#texts", "c c\na b\n\na c")
        page.click("#search")
        until(page, "document.querySelectorAll('#found li').length == 3")
        texts = ["c c", "a b", "a c"]
        scores = self.client.post("/similarity", {"inputs": {"source_sentence": "a b", "sentences": texts}}).json
        wanted = [f"{score:.3f} {text}" for score, text in sorted(zip(scores, texts), reverse=True)]
        self.assertEqual(page.locator("#found li").all_text_contents(), wanted)
        page.click("#rank")
        until(page, "document.querySelectorAll('#ranked li').length == 3")
        hits = self.client.post("/rerank", {"query": "a b", "texts": texts}).json
        self.assertEqual(page.locator("#ranked li").all_text_contents(),
                         [f"{hit['score']:.3f} {texts[hit['index']]}" for hit in hits])
        check()

    def test_texts_with_a_seed_and_with_a_schema(self):
        page, check = self.opened(self.server)
        page.fill("#tokens", "12")
        page.fill("#seed", "5")
        written = self.write(page)
        wanted = {"model": "bytes", "prompt": page.input_value("#prompt"), "max_tokens": 12, "temperature": 1, "seed": 5}
        self.assertEqual(written, self.client.post("/v1/completions", wanted).json["choices"][0]["text"])
        self.assertEqual(self.write(page), written)
        page.fill("#schema", json.dumps(SCHEMA))
        page.fill("#tokens", "60")
        self.assertIn(json.loads(self.write(page))["name"], ("bob", "tom"))
        page.fill("#schema", "{")
        self.assertIn("JSON", self.write(page))
        self.assertEqual(page.get_attribute("#written", "class"), "error")
        check()

    def test_numbers_are_live(self):
        page, check = self.opened(self.server)
        rows = {"tokens read a second", "tokens written a second", "of prompts, known before", "of guesses, right", "memory"}
        until(page, "document.querySelectorAll('#live tr').length > 5")
        self.assertLess(rows, set(page.locator("#live td:first-child").all_text_contents()))
        page.evaluate("window.seen = 0; new MutationObserver(() => { for (const line of document.querySelectorAll('#live tr'))"
                      " if (line.cells[0].textContent == 'tokens written a second')"
                      " window.seen = Math.max(window.seen, Number(line.cells[1].textContent)); })"
                      ".observe(document.getElementById('live'), {childList: true, subtree: true})")
        page.fill("#tokens", "100")
        self.write(page)
        until(page, "window.seen > 0")
        check()

    def test_a_key_is_asked_for(self):
        port = self.guarded.port
        context = self.browser.new_context()
        self.addCleanup(context.close)
        answer = context.request.get(f"http://127.0.0.1:{port}/")
        self.assertEqual(answer.status, 401)
        self.assertIn("Basic", answer.headers["www-authenticate"])
        page, check = self.opened(self.guarded, http_credentials={"username": "any", "password": "k" * 40})
        self.assertNotIn("no keys", page.text_content("#state"))
        page.fill("#question", "a b")
        page.fill("#texts", "a b")
        page.click("#search")
        until(page, "document.querySelectorAll('#found li').length == 1")
        self.assertEqual(page.locator("#found li").all_text_contents(), ["1.000 a b"])


if __name__ == "__main__":
    unittest.main()
