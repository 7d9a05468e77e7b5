"""What sentence transformers make of a folder with modules.json: the package opens all of it, and takes ids in place of texts.

A folder without a tokenizer is given one, whose words nobody asks for. What depends on tensors that the folder does not have
is left out: it is another number with each seed.
"""
import json

import numpy as np
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import StaticEmbedding


CLASSES = {c.__name__: c for c in (CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder)}

SETTLED = []  # outputs that were the same with two seeds: the same again are of all tensors


def with_tokenizer(folder, words):
    if not (folder / "tokenizer.json").exists():
        model = dict(type="WordLevel", vocab={f"w{i}": i for i in range(words)}, unk_token="w0")
        (folder / "tokenizer.json").write_text(json.dumps(dict(version="1.0", added_tokens=[], model=model)))
    if not (folder / "tokenizer_config.json").exists():
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", pad_token="w0", unk_token="w0")))


def opened(folder, attention, dtype):
    """By the class that the folder is for. One that says none is SentenceTransformer's, which opens modules of any kind."""
    file = folder / "config_sentence_transformers.json"
    said = json.loads(file.read_text()) if file.exists() else {}
    name = said.get("model_type") if isinstance(said, dict) else None
    kind = CLASSES.get(name, SentenceTransformer) if isinstance(name, str) else SentenceTransformer
    model = kind(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(attn_implementation=attention, dtype=dtype))
    return model.eval().to(dtype)


def features(model, inputs):
    """In the attention_mask of a case 2 is the prompt."""
    mask = inputs["attention_mask"]
    if isinstance(model[0], StaticEmbedding):  # takes the words of all texts in a row, and where each begins
        words = mask.sum(1)
        return dict(input_ids=inputs["input_ids"][mask != 0], offsets=words.cumsum(0) - words)
    return dict(inputs, attention_mask=(mask != 0).long(), prompt_length=(mask == 2).sum(1))


def with_seed(folder, inputs, attention, dtype, seed):
    torch.manual_seed(seed)
    model = opened(folder, attention, dtype)
    made = model(features(model, inputs))
    if "sentence_embedding" in made:
        found = dict(sentence_embedding=made["sentence_embedding"][:, :getattr(model, "truncate_dim", None)])
    elif "scores" in made:
        found = dict(logits=made["scores"])
    else:
        found = dict(token_embeddings=made["token_embeddings"], last_hidden_state=made["token_embeddings"])
    return {k: v.numpy() for k, v in found.items()}


def outputs(folder, inputs, attention, dtype):
    """The outputs by their names here, none if all depend on what is missing."""
    with_tokenizer(folder, 40)
    first = with_seed(folder, inputs, attention, dtype, 1)
    if any(all(np.array_equal(v, seen.get(k)) for k, v in first.items()) for seen in SETTLED):
        return first
    second = with_seed(folder, inputs, attention, dtype, 2)
    if all(np.array_equal(v, second[k]) for k, v in first.items()):
        SETTLED.append(first)
    return {k: v for k, v in first.items() if np.array_equal(v, second[k], equal_nan=True)}
