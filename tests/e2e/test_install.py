#!/usr/bin/env python3
"""What is installed, used as others use it. usage: test_install.py BUILD [unittest arguments]

Installs the build into a temporary folder, moves it, and builds a C program against the CMake package and another with
pkg-config. Needs nothing but Python's own library; what a machine lacks (pkg-config, man, zsh) is said and skipped.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = None
MODEL = """include "part.tfm"
model Small(n = 3) {
  up = Linear(n, 2)
  twice = Twice()
  forward(x: f32[batch, n]) { return y = twice(up(x)) }
}
"""
PART = "layer Twice {\n  forward(x) { return x * 2 }\n}\n"
USE_LIBRARY = r"""
#include <stdio.h>
#include "small.h"
int main(int argc, char **argv) {
  tfm_error error;
  small_model *model = NULL;
  small_context *context = NULL;
  float x[3] = {1, 0, 2}, y[2];
  small_args args = {0};
  if (small_open(argc > 1 ? argv[1] : NULL, &model, &error) || small_context_new(model, NULL, &context, &error)) {
    puts(error.message);
    return 1;
  }
  args.struct_size = sizeof args;
  args.batch = 1;
  args.x = x;
  args.y = y;
  args.y_capacity = 2;
  if (small_forward(context, &args, &error)) {
    puts(error.message);
    return 1;
  }
  printf("%g %g\n", y[0], y[1]);
  small_context_free(context);
  small_close(model);
  return 0;
}
"""
USE_LIBTFM = r"""
#include <stdio.h>
#include <string.h>
#include <tfm/compile.h>
int main(int argc, char **argv) {
  tfm_error error;
  tfm_compiled *compiled = NULL;
  tfm_compile_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.path = argv[1];
  options.weights_path = argv[2];
  options.in_process = argc > 3;
  if (tfm_compile(&options, &compiled, &error)) {
    puts(error.message);
    return 1;
  }
  tfm_context *context = NULL;
  float x[3] = {1, 0, 2}, y[2];
  const int64_t x_dims[2] = {1, 3}, y_dims[2] = {1, 2};
  tfm_value input = {x, 0, 2, x_dims}, output = {y, 0, 2, y_dims};
  if (tfm_model_context(tfm_compiled_model(compiled), NULL, &context, &error) || tfm_context_bind(context, &input, &error) ||
      tfm_context_run(context, &input, &output, &error)) {
    puts(error.message);
    return 1;
  }
  printf("%g %g\n", y[0], y[1]);
  tfm_context_destroy(context);
  tfm_compiled_free(compiled);
  return 0;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(use LANGUAGES C CXX)
find_package(Tfm 0.1 REQUIRED)
tfm_add_model(small model.tfm WEIGHTS w.safetensors MARCH x86-64 x86-64-v3 DEFINE n=3 DEPENDS part.tfm)
add_executable(use use.c)
target_link_libraries(use PRIVATE small)
get_target_property(weights small TFM_WEIGHTS_FILE)
target_compile_definitions(use PRIVATE WEIGHTS="${weights}")
tfm_add_model(embedded model.tfm WEIGHTS w.safetensors EMBED_WEIGHTS MODEL Small)
add_executable(use_embedded use_embedded.c)
target_link_libraries(use_embedded PRIVATE embedded)
add_executable(use_libtfm libtfm.c)
target_link_libraries(use_libtfm PRIVATE Tfm::tfm)
add_executable(use_libtfm_cxx libtfm.cpp)
target_link_libraries(use_libtfm_cxx PRIVATE Tfm::tfm)
file(GENERATE OUTPUT weights.txt CONTENT "${weights}")
"""
EXPECTED = "16 30\n"


def save_weights(path):
    values = struct.pack("<8f", 1, 2, 3, 4, 5, 6, 1, -1)
    header = json.dumps({"up.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                         "up.bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)


def run(*args, **kwargs):
    environment = {k: v for k, v in os.environ.items() if k != "TFM_COMPILER"}
    environment.update(kwargs.pop("env", {}))
    proc = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=300, env=environment, **kwargs)
    if proc.returncode:
        raise AssertionError(f"{args}: exit {proc.returncode}\n{proc.stdout}\n{proc.stderr}")
    return proc.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        root = pathlib.Path(cls.folder.name)
        run("cmake", "--install", BUILD, "--prefix", "/opt/tfm", env={"DESTDIR": str(root / "stage")})
        cls.prefix = root / "moved"
        shutil.move(root / "stage/opt/tfm", cls.prefix)
        cls.rest = [str(p) for p in (root / "stage").rglob("*") if p.is_file()]
        cls.project = root / "project"
        cls.project.mkdir()
        for name, text in {"model.tfm": MODEL, "part.tfm": PART, "use.c": USE_LIBRARY, "libtfm.c": USE_LIBTFM,
                           "libtfm.cpp": USE_LIBTFM, "CMakeLists.txt": CMAKE,
                           "use_embedded.c": USE_LIBRARY.replace("small.h", "embedded.h")}.items():
            (cls.project / name).write_text(text)
        save_weights(cls.project / "w.safetensors")

    def find(self, pattern):
        found = sorted(self.prefix.rglob(pattern))
        self.assertEqual(len(found), 1, f"{pattern}: {found}")
        return found[0]

    def test_files(self):
        self.assertEqual(self.rest, [], "something was installed outside of the prefix")
        for name in ("bin/tfmc", "include/tfm/tfm.h", "include/tfm/types.h", "include/tfm/program.h", "include/tfm/library.h",
                     "include/tfm/compile.h", "include/tfm/kernels.h", "include/tfm/abi/program.h", "include/tfm/abi/steps.def"):
            self.assertTrue((self.prefix / name).is_file(), name)
        for pattern in ("libtfm.so", "libtfm.so.0", "libtfm_runtime.a", "tfm.pc", "TfmConfig.cmake", "TfmConfigVersion.cmake",
                        "tfmc.1", "bash-completion/completions/tfmc", "_tfmc", "tfmc.fish", "tfm/tfm-worker.so",
                        "doc/tfmc/LICENSE", "doc/tfmc/NOTICE", "doc/tfmc/CHANGELOG.md"):
            self.find(pattern)
        self.assertEqual(run(self.prefix / "bin/tfmc", "--version").split()[0], "tfmc")

    def test_headers_stand_alone(self):
        for language, standard in (("c", "c99"), ("c++", "c++17")):
            for header in sorted((self.prefix / "include/tfm").rglob("*.h")):
                run("c++" if language == "c++" else "cc", f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-x",
                    language, "-fsyntax-only", f"-I{self.prefix}/include", header)

    def test_cmake(self):
        build = self.project / "build"
        run("cmake", "-S", self.project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        weights = (build / "weights.txt").read_text()
        self.assertEqual(run(build / "use", weights), EXPECTED)
        self.assertEqual(run(build / "use_embedded"), EXPECTED)
        for name in ("use_libtfm", "use_libtfm_cxx"):
            self.assertEqual(run(build / name, "model.tfm", "w.safetensors", cwd=self.project), EXPECTED)
        again = run("cmake", "--build", build)
        self.assertNotIn("Compiling the model", again)
        (self.project / "part.tfm").write_text(PART + "\n")
        self.assertIn("Compiling the model small", run("cmake", "--build", build))

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        env = {"PKG_CONFIG_PATH": str(self.find("tfm.pc").parent)}
        flags = run("pkg-config", "--cflags", "--libs", "tfm", env=env).split()
        program = self.project / "use_pkg_config"
        run("cc", "-o", program, self.project / "libtfm.c", *flags)
        env["LD_LIBRARY_PATH"] = str(self.find("libtfm.so").parent)
        self.assertEqual(run(program, "model.tfm", "w.safetensors", cwd=self.project, env=env), EXPECTED)
        self.assertEqual(run(program, "model.tfm", "w.safetensors", "here", cwd=self.project, env=env), EXPECTED)
        command = run("pkg-config", "--variable=tfmc", "tfm", env=env).strip()
        self.assertTrue(os.path.samefile(command, self.prefix / "bin/tfmc"))

    def test_pkg_config_of_the_system(self):
        """Below /usr there is nothing to say but the library's name: a path there would come before those of the compiler."""
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        with tempfile.TemporaryDirectory() as stage:
            run("cmake", "--install", BUILD, "--prefix", "/usr", env={"DESTDIR": stage})
            found = list(pathlib.Path(stage).rglob("tfm.pc"))
            self.assertEqual(len(found), 1, found)
            env = {"PKG_CONFIG_PATH": str(found[0].parent)}
            self.assertEqual(run("pkg-config", "--cflags", "tfm", env=env).strip(), "")
            libs = run("pkg-config", "--libs", "tfm", env=env).split()
            self.assertIn(libs, (["-ltfm"], ["-L/usr/" + os.path.relpath(found[0].parents[1], stage + "/usr"), "-ltfm"]))
            self.assertEqual(run("pkg-config", "--variable=tfmc", "tfm", env=env).strip(), "/usr/bin/tfmc")

    def test_training_as_documented(self):
        """docs/training.md: a model that is a text, trained by a C program."""
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs/training.md").read_text()
        folder = self.project / "trained"
        folder.mkdir()
        (folder / "tagger.tfm").write_text(re.search(r"```tfm\n(model Tagger.*?)```", page, re.S)[1])
        (folder / "train_text.c").write_text(re.search(r"```c\n(/\* train_text.c.*?)```", page, re.S)[1])
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        env = {"PKG_CONFIG_PATH": str(self.find("tfm.pc").parent), "LD_LIBRARY_PATH": str(self.find("libtfm.so").parent)}
        run("sh", "-c", re.search(r"```sh\n(cc [^\n]* -o train_text)\n```", page)[1], cwd=folder, env=env)
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "train_text.c", f"-I{self.prefix}/include",
            cwd=folder)
        self.assertRegex(run("./train_text", cwd=folder, env=env), r"^step 300: loss 0\.\d+\n$")
        self.assertTrue((folder / "run_text/step-00000300/weights.safetensors").is_file())

    def test_object_and_runtime_archive(self):
        folder = self.project / "object"
        folder.mkdir()
        run(self.prefix / "bin/tfmc", "compile", self.project / "model.tfm", "-c", "-o", folder / "small.o", "--weights",
            self.project / "w.safetensors", "-q")
        run("cc", "-o", folder / "use", self.project / "use.c", folder / "small.o", f"-I{folder}", self.find("libtfm_runtime.a"),
            "-lm", "-lpthread")
        self.assertEqual(run(folder / "use", folder / "small.tfmw"), EXPECTED)

    def test_manual_page(self):
        if not shutil.which("man"):
            self.skipTest("no man")
        proc = subprocess.run(["man", "-l", "--warnings", self.find("tfmc.1")], capture_output=True, text=True,
                              env=os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFOPT": ""})
        self.assertEqual((proc.returncode, proc.stderr), (0, ""))
        for word in ("compile", "--weights", "EXIT STATUS", "TFM_NUM_THREADS"):
            self.assertIn(word, proc.stdout)
        self.assertNotIn("worker", proc.stdout)

    def complete(self, *words):
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tfmc; printf "%s\\n" "${COMPREPLY[@]}"')
        return run("bash", "-c", script, "bash", self.find("bash-completion/completions/tfmc"), "tfmc", *words,
                   cwd=self.project).split()

    def test_bash(self):
        self.assertEqual(self.complete("comp"), ["compile"])
        self.assertEqual(self.complete("compile", "--emb"), ["--embed-weights"])
        self.assertEqual(self.complete("compile", "--emit", "=", "l"), ["lib", "llvm"])
        self.assertEqual(self.complete("run", "-march", "="), ["native", "x86-64", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4",
                                                              "x86-64-v4-vnni", "x86-64-v4-amx", "wasm32-simd128", "wasm32-relaxed-simd", "armv8-a",
                                                              "armv8.2-a-dotprod", "armv8.6-a-i8mm", "rv64gc", "rv64gcv",
                                                              "rv64gcv-zvl256b"])
        self.assertEqual(self.complete("check", "mod"), ["model.tfm"])
        self.assertEqual(self.complete("help", "ver"), ["verify"])
        self.assertNotIn("worker", self.complete(""))

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        run("zsh", "-n", self.find("_tfmc"))

    def fish(self, line):
        script = 'source $argv[1]; complete -C $argv[2]'
        out = run("fish", "-N", "-c", script, self.find("tfmc.fish"), line, cwd=self.project, env={"HOME": str(self.project)})
        return sorted(row.split("\t")[0] for row in out.splitlines())

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        self.assertEqual(self.fish("tfmc comp"), ["compile"])
        self.assertEqual(self.fish("tfmc compile --emb"), ["--embed-weights"])
        self.assertEqual(self.fish("tfmc compile --emit=l"), ["--emit=lib", "--emit=llvm"])
        self.assertEqual(self.fish("tfmc run -march=n"), ["-march=native"])
        self.assertEqual(self.fish("tfmc check mod"), ["model.tfm"])
        self.assertEqual(self.fish("tfmc graph --stage pr"), ["primitive"])
        self.assertEqual(self.fish("tfmc help ver"), ["verify"])
        self.assertNotIn("worker", self.fish("tfmc "))


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
