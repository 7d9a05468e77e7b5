"""For pipelines of Ray Data that exist: a class for map_batches. tfmc.corpus has an engine for whole jobs.

    dataset.map_batches(tfmc.ray.Embedder, fn_constructor_args=("all-MiniLM-L6-v2",), batch_size=1024, num_cpus=1,
                        compute=ray.data.ActorPoolStrategy(size=2))
"""
from .corpus import _worker


class Embedder:
    """Adds a column of vectors to batches (dicts of columns). Each actor opens the model once; a folder's is compiled
    once a machine."""

    def __init__(self, model, *, tokenizer=None, column="text", output="embedding", threads=1, batch_tokens=None,
                 **options):
        """options: those of tfmc.text.Embedder.encode."""
        from . import text
        _worker.limit_tokenizers(threads)
        opened, folder = _worker.open_model(model, tokenizer, threads)
        given = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
        self.embedder = text.Embedder(opened, folder=folder, **given)
        self.column, self.output, self.options = column, output, options

    def __call__(self, batch):
        texts = [str(text) for text in batch[self.column]]
        return {**batch, self.output: self.embedder.encode(texts, **self.options)}
