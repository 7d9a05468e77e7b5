"""A program for `mypy --strict`: what users write must have the types that the stubs say. It is checked, not run."""
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tfmc
import tfmc.corpus
import tfmc.text


def use(folder: pathlib.Path) -> list[int]:
    pool = tfmc.Pool(2)
    model = tfmc.compile(folder / "model.tfm", weights={"w": np.zeros((2, 2), np.float32)}, depth=3, act='"gelu"', pool=pool)
    y = model(np.ones((1, 2), np.float32), ids=[[1, 2]])
    results: dict[str, NDArray[Any]] = model.run({"x": y}, outputs=["y"])
    shape: tuple[int | str, ...] = model.inputs["x"].shape
    with tfmc.from_pretrained(folder) as writer:
        rows = writer.generate([[1, 2], [3]], num_beams=3, on_token=lambda item, token: token == 2)
        tokens = [token.token for token in writer.stream([[1]], max_new_tokens=3)]
        with writer.decoder(max_rows=1, max_length=9) as decoder:
            logits = decoder.step([(decoder.join(), [1, 2])])
    print(model.report(), model.dump("plan"), model.profile(ids="4x16", x=y, iterations=3).splitlines())
    path: pathlib.Path = model.save(folder / "model.tfmm")
    try:
        tfmc.load(path, threads=1)
    except tfmc.CompileError as error:
        print(error.place, [d.line for d in error.diagnostics], shape, results)
    trainer = tfmc.Trainer(folder / "model.tfm", seed=1, lr=1e-3, schedule="linear", freeze=["embed.*"], rates=[["head.*", 10]])
    loss: float = trainer.step(ids=[[1, 2]], labels=y).loss + trainer.evaluate({"ids": y})["loss"]
    run = trainer.fit([{"ids": [1, 2]}], epochs=2, patience=1, callbacks=[lambda record: record["step"] > loss])
    print(run.stopped, trainer.save(folder, note=b"mine").name, trainer.state_dict().keys(), trainer.model().march)
    hits = tfmc.text.Reranker(folder).rank("who?", ["she", "it"], top_k=1)
    same: bool = tfmc.verify_torch(model, None, {"x": y}, tolerance=1e-4).same
    german: list[str] = tfmc.text.Translator(folder).translate(["Who?"], target="de", num_beams=4)
    summary = tfmc.corpus.embed([folder / "a.jsonl"], "out", model=folder, keep=["id"], part="0/2", progress=print)
    print(summary.rows, [part.number for part in tfmc.corpus.parts(folder)])
    print(hits[0]["corpus_id"], german, same, tfmc.text.Translator(folder)("Who?").upper())
    return [*tokens, *map(int, rows[0]), *logits.shape]
