#!/usr/bin/env python3
"""What a call costs: usage: call.py. A model of one product, y = x w, of one thread, by tfmc and by onnxruntime, in
interleaved rounds; the least and the middle of the microseconds a call. Needs tfmc (PYTHONPATH=BUILD/python), onnx and
onnxruntime; without the last two, tfmc alone is measured.
"""
import statistics
import time

import numpy as np

import tfmc

ROUNDS, CALLS, D = 40, 2000, 16
TEXT = f"""model One(d = {D}) {{
  product = Linear(d, d, bias = false)
  forward(x: f32[n, d]) {{
    y = product(x)
    return y
  }}
}}
"""


def by_tfmc(w):
    model = tfmc.compile(TEXT, weights={"product.weight": w}, threads=1)
    return model, lambda x: model(x)


def by_tfmc_named(w):
    model = tfmc.compile(TEXT, weights={"product.weight": w}, threads=1)
    return model, lambda x: model(x=x)


def by_onnxruntime(w):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    shape = ["n", D]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "one",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(np.ascontiguousarray(w.T), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session, lambda x: session.run(["y"], {"x": x})[0]


def main():
    w = np.random.default_rng(1).normal(size=(D, D)).astype(np.float32)
    x = np.ones((1, D), np.float32)
    ways = {"tfmc model(x)": by_tfmc(w), "tfmc model(x=x)": by_tfmc_named(w)}
    try:
        ways["onnxruntime"] = by_onnxruntime(w)
    except ImportError as error:
        print(f"without onnxruntime: {error}")
    for _, call in ways.values():
        assert np.allclose(call(x), x @ w.T, atol=1e-5)
    times = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (_, call) in ways.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call(x)
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    for name, all_times in times.items():
        print(f"{name:16} {min(all_times):6.2f} us a call, middle {statistics.median(all_times):.2f}")


main()
