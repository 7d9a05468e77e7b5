"""What is taken for an array: types, layouts, who copies, and objects that lie."""
import array
import sys
import unittest

import numpy as np

import tfmc
from support import IDS, KEEP, ONE_WEIGHTS, X, Case, one, pair, pair_expected

try:
    import torch
except ImportError:
    torch = None


class Layouts(Case):
    def test_floats_in_every_layout(self):
        expected = one()(X)
        wide = np.zeros((5, 8), np.float32)
        wide[:, ::2] = X
        shifted = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(5, 4)
        read_only = X.copy()
        read_only.flags.writeable = False
        layouts = {"strided": wide[:, ::2], "fortran": np.asfortranarray(X), "big-endian": X.astype(">f4"),
                   "misaligned": shifted, "read-only": read_only, "reversed": X[::-1][::-1].copy()[::-1][::-1],
                   "memoryview": memoryview(X), "array": memoryview(array.array("f", X.ravel())).cast("B").cast("f", (5, 4)),
                   "list": X.tolist(), "tuple": tuple(map(tuple, X.tolist()))}
        for name, x in layouts.items():
            with self.subTest(name):
                np.testing.assert_array_equal(one()(x), expected)

    def test_ids_and_flags_in_every_type(self):
        y, kept = pair_expected()
        for ids in (IDS.astype(np.int64), IDS.tolist(), IDS.astype(">i4"), IDS.astype(">i8"), np.repeat(IDS, 2)[::2],
                    array.array("i", IDS), array.array("q", IDS)):
            for keep in (KEEP.tolist(), np.repeat(KEEP, 3)[::3], (KEEP * 7).astype(np.uint8).view(np.bool_)):
                result = pair()(X, ids, keep)
                np.testing.assert_array_equal(result.kept, kept)
                np.testing.assert_allclose(result.y, y, atol=1e-5)

    def test_scalars_and_nothing(self):
        text = """model S() {
  forward(x: f32[n], s: f32[], k: i32[]) {
    y = x * s
    m = k + 1
    return y, m
  }
}
"""
        model = tfmc.compile(text)
        for s, k in ((2.0, 3), (np.float32(2), np.int32(3)), (np.array(2, np.float32), np.array(3)), (2, np.int64(3))):
            result = model(np.ones(2, np.float32), s, k)
            np.testing.assert_array_equal(result.y, [2, 2])
            self.assertEqual((int(result.m), result.m.shape), (4, ()))
        self.assertEqual(model([], 1.0, 1).y.shape, (0,))

    @unittest.skipUnless(torch, "torch is not installed")
    def test_torch(self):
        x = torch.from_numpy(X.copy())
        np.testing.assert_array_equal(one()(x), one()(X))
        np.testing.assert_array_equal(one()(x.T.contiguous().T), one()(X))
        result = pair()(x, torch.from_numpy(IDS.astype(np.int64)), torch.from_numpy(KEEP))
        np.testing.assert_array_equal(result.kept, pair_expected()[1])
        self.assertEqual(torch.from_dlpack(result.y).shape, (5, 3))
        self.refused(tfmc.InputError, 'input "x" cannot be read', one(), torch.nn.Parameter(x))
        from support import ONE
        w = torch.from_numpy(ONE_WEIGHTS["product.weight"]).bfloat16()
        model = tfmc.compile(ONE, weights={"product.weight": torch.nn.Parameter(w)})
        np.testing.assert_allclose(model(X), X @ w.float().numpy().T, atol=1e-5)

    def test_dlpack(self):
        class Foreign:  # nothing but DLPack
            def __init__(self, inner):
                self.inner = inner

            def __dlpack__(self, **named):
                return self.inner.__dlpack__(**named)

            def __dlpack_device__(self):
                return self.inner.__dlpack_device__()
        np.testing.assert_array_equal(one()(Foreign(X)), one()(X))


class Refusals(Case):
    def test_types_are_named_with_the_cure(self):
        error = self.refused(tfmc.InputError, ['input "x" is float64', "f32[n, 4]", "x.astype(np.float32)"], one(),
                             X.astype(np.float64))
        self.assertEqual(error.reason, "type")
        for x in (X.astype(np.float16), X.astype(np.int32), X.astype(np.complex64), X.astype(str), [["a"] * 4]):
            self.refused(tfmc.InputError, 'input "x"', one(), x)
        for ids in (IDS.astype(np.uint32), IDS.astype(np.int16), IDS.astype(np.float32), [1.5] * 5, KEEP):
            self.refused(tfmc.InputError, ['input "ids"', "x.astype(np.int32)"], pair(), X, ids, KEEP)
        self.refused(tfmc.InputError, ['input "keep" is uint8', "np.bool"], pair(), X, IDS, KEEP.astype(np.uint8))
        self.refused(tfmc.InputError, ['input "ids"', "4294967297"], pair(), X, IDS.astype(np.int64) + 2**32, KEEP)
        self.refused(tfmc.InputError, 'input "x"', one(), [[1.0], [2.0, 3.0]])
        for thing in (object(), None, "abc", {1: 2}):
            self.refused(tfmc.UsageError, 'input "x"', one(), thing)

    def test_objects_that_raise_or_lie(self):
        class Raises:
            def __dlpack__(self, **named):
                raise RuntimeError("no tensor today")

            def __dlpack_device__(self):
                return (1, 0)
        self.refused(tfmc.InputError, "no tensor today", one(), Raises())

        class Lies(Raises):
            def __dlpack__(self, **named):
                return object()
        self.refused(tfmc.InputError, 'input "x" cannot be read', one(), Lies())

    def test_a_buffer_cannot_shrink_while_it_is_read(self):
        class Out(bytearray):
            pass
        floats = array.array("f", [1.0] * 4)
        view = memoryview(floats).cast("B").cast("f", (1, 4))
        expected = one()(np.ones((1, 4), np.float32))
        np.testing.assert_array_equal(one()(view), expected)
        view.release()
        floats.append(2.0)  # nothing holds it any more

    @unittest.skipIf(sys.version_info < (3, 12), "__buffer__ came with Python 3.12")
    def test_buffers_written_in_python(self):
        class Raises:
            def __buffer__(self, flags):
                raise ValueError("not now")
        self.refused((tfmc.InputError, tfmc.UsageError), 'input "x"', one(), Raises())

    def test_nothing_is_held_after_errors(self):
        x, ids = X.copy(), IDS.copy()
        counts = sys.getrefcount(x), sys.getrefcount(ids)
        for _ in range(50):
            with self.assertRaises(tfmc.Error):
                pair()(x, ids[:2], KEEP)
            with self.assertRaises(tfmc.Error):
                pair()(x, ids)
            with self.assertRaises(tfmc.Error):
                pair().run({"x": x, "ids": ids, "keep": KEEP}, out={"y": x})
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(ids)), counts)
        x.resize((1, 4), refcheck=False)  # refused if a buffer is exported

    def test_large_outputs_begin_at_a_line_of_the_cache(self):
        for n in (1, 300, 1111):
            y = one()(np.ones((n, 4), np.float32))
            self.assertEqual((y.shape, y.dtype, y.flags.c_contiguous, y.flags.writeable), ((n, 4), np.float32, True, True))
            if y.nbytes >= 4096:
                self.assertEqual(y.ctypes.data % 64, 0)
        self.assertEqual(y[7].tolist(), one()(np.ones((1, 4), np.float32))[0].tolist())

    def test_floats_are_not_copied(self):
        import tracemalloc
        x = np.ones((20000, 4), np.float32)
        out = np.empty_like(x)
        one().run({"x": x}, out={"y": out})
        tracemalloc.start()
        one().run({"x": x}, out={"y": out})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, x.nbytes // 4)


class Memory(Case):
    def test_memory_that_is_gone_at_each_allocation(self):
        """Python's allocations fail one after the other; each call raises MemoryError or succeeds."""
        try:
            import _testcapi
        except ImportError:
            self.skipTest("this Python has no _testcapi")
        model, ids = pair(), IDS.astype(np.int64)
        model(X, ids, KEEP)
        failures = 0
        for start in range(40):
            failed = False
            _testcapi.set_nomemory(start, start + 1)
            try:
                model(X, ids, KEEP)
            except MemoryError:
                failed = True
            finally:
                _testcapi.remove_mem_hooks()
            failures += failed
        self.assertGreater(failures, 0)
        np.testing.assert_array_equal(model(X, ids, KEEP).kept, pair_expected()[1])


if __name__ == "__main__":
    unittest.main()
