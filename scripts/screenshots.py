#!/usr/bin/env python3
"""usage: screenshots.py TFMC FOLDER [--docs]

Pictures of every view of the page of `tfmc explore`, light and dark, 360, 1400 and 3840 wide, to be looked at; with --docs the
four that the documents have. Needs Debian's chromium, chromium-driver and python3-selenium.
"""
import argparse
import os
import pathlib
import subprocess
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

MODEL = pathlib.Path(__file__).resolve().parents[1] / "examples/minilm/minilm.tfm"
VIEWS = ("source", "map", "steps", "memory", "code", "passes", "compare")
WINDOWS = ((360, 800), (1400, 900), (3840, 1600))
OF_DOCS = (("source", "light"), ("map", "light"), ("steps", "light"), ("compare", "dark"))


def browser(folder):
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver", env=os.environ | {"TMPDIR": folder}), options=options)


def take(driver, page, view, scheme, window, file):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": window[0], "height": window[1], "deviceScaleFactor": 1, "mobile": False})
    driver.get("about:blank")
    driver.get(f"file://{page}#view={view}&sel=step:0.6")
    time.sleep(0.3)  # code is unpacked
    driver.save_screenshot(str(file))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tfmc")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = pathlib.Path(folder, "minilm.html")
        subprocess.run([args.tfmc, "explore", MODEL, "-march=x86-64-v3", "--threads=2", "-o", page, "--compare", MODEL,
                        "--compare-with=--quantize=int8"], check=True)
        driver = browser(folder)
        try:
            if args.docs:
                for view, scheme in OF_DOCS:
                    take(driver, page, view, scheme, (1280, 760), args.folder / f"explore-{view}.png")
            else:
                for scheme in ("light", "dark"):
                    for window in WINDOWS:
                        for view in VIEWS:
                            take(driver, page, view, scheme, window, args.folder / f"{view}-{window[0]}-{scheme}.png")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
