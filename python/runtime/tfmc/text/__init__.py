"""Texts in, vectors, scores and texts out: a checkpoint's folder with its tokenizer. Needs the package tokenizers.

    embed = tfmc.text.Embedder("all-MiniLM-L6-v2")
    vectors = embed.encode(["a dog runs", "a puppy plays"])      # f32 [2, 384]

    rerank = tfmc.text.Reranker("ms-marco-MiniLM-L6-v2")
    for hit in rerank.rank("who runs?", ["a dog runs", "it rains"], top_k=1):
        print(hit["corpus_id"], hit["score"])

    translate = tfmc.text.Translator("opus-mt-en-de")
    print(translate(["Where is the station?"], num_beams=4))

    writer = tfmc.text.Writer("smollm2-135m")
    for piece in writer.stream("Once upon a time", max_new_tokens=40):
        print(piece, end="", flush=True)

    tfmc.text.finetune("all-MiniLM-L6-v2", [("who runs?", "a dog runs"), ...], task="pairs", out="mine")

Refused, with a message that names the file or the text: folders without a tokenizer, models of another kind, texts that
are too long where they may not be cut, what is no text.
"""
from ._finetune import finetune
from ._folder import UNLIMITED, load_tokenizer
from ._multi import MultiVectorEmbedder
from ._translate import Translator
from ._vectors import BATCH_TOKENS, Embedder, Reranker
from ._writer import Writer

__all__ = ["BATCH_TOKENS", "Embedder", "MultiVectorEmbedder", "Reranker", "Translator", "UNLIMITED", "Writer", "finetune",
           "load_tokenizer"]
