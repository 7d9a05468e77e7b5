#!/usr/bin/env python3
"""Models with random weights in the sizes that people serve, for load: a folder for tfmc-serve and for transformers, and a
GGUF file for llama.cpp with the same weights.

usage: make_models.py FOLDER llama|gpt2|m2m [--gguf]

llama: the sizes of SmolLM2-360M (49,152 tokens). gpt2: those of GPT-2 small, with 2,048 positions and 32,000 tokens.
m2m: a translator of the size of Transformer-base, with 32,000 tokens, and FOLDER/ct2, the same weights for CTranslate2.
The tokenizer has tokens of bytes (BPE), learned from the texts of this project; tokens that these do not give are called
<extra N>. --gguf: FOLDER/model.gguf too, in f32; llama alone. Needs torch, transformers, tokenizers, safetensors, gguf; m2m: ctranslate2.
Out: FOLDER, which must not be there.
"""
import argparse
import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
END = 0
NEVER = 31999  # where m2m ends: with random weights the token that begins a row is the likeliest after itself


def texts():
    for pattern in ("docs/**/*.md", "compiler/**/*.[ch]", "runtime/**/*.[ch]", "python/**/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text(encoding="utf-8", errors="ignore")


def tokenizer_of(vocab):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<end>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    made.train_from_iterator(texts(), trainer)
    made.add_tokens([f"<extra {number}>" for number in range(vocab - made.get_vocab_size())])
    return made


def model_of(kind):
    torch.manual_seed(1)
    shared = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": None}
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=49152, hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15,
            num_key_value_heads=5, max_position_embeddings=8192, tie_word_embeddings=True, **shared))
    if kind == "m2m":
        return transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(
            vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
            encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=512, bos_token_id=END,
            eos_token_id=NEVER, pad_token_id=1, decoder_start_token_id=END))
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=32000, n_positions=2048, **shared))


def pairs(matrix, heads):
    """Rows of queries and keys in llama.cpp's order: what is rotated together stands side by side."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def write_gguf(model, tokenizer, path):
    import gguf
    config, weights = model.config, {name: value.numpy() for name, value in model.state_dict().items()}
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(10000.0)
    out.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    out.add_vocab_size(config.vocab_size)
    model_of_tokens = json.loads(tokenizer.to_str())["model"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list([tokenizer.id_to_token(number) for number in range(config.vocab_size)])
    out.add_token_types([3 if number == END else 1 for number in range(config.vocab_size)])
    out.add_token_merges([" ".join(pair) for pair in model_of_tokens["merges"]])
    out.add_eos_token_id(END)
    out.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    out.add_tensor("output_norm.weight", weights["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for name, theirs in NAMES.items():
            value = weights[f"model.layers.{layer}.{name}.weight"]
            out.add_tensor(f"blk.{layer}.{theirs}.weight", pairs(value, heads[name]).copy() if name in heads else value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_ct2(model, tokenizer, folder):
    """What the converter of CTranslate2 makes, with the tokens of this tokenizer."""
    from ctranslate2.converters.transformers import M2M100Loader
    spec = M2M100Loader().get_model_spec(model)
    tokens = [tokenizer.id_to_token(number) for number in range(model.config.vocab_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token = spec.config.decoder_start_token = tokens[END]
    spec.config.eos_token = tokens[NEVER]
    spec.config.unk_token = tokens[END]
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("kind", choices=("llama", "gpt2", "m2m"))
    parser.add_argument("--gguf", action="store_true")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        sys.exit(f"{arguments.folder} is there already")
    if arguments.gguf and arguments.kind != "llama":
        parser.error("--gguf: of llama alone")
    model = model_of(arguments.kind)
    tokenizer = tokenizer_of(model.config.vocab_size)
    if arguments.kind == "m2m":
        tokenizer.post_processor = processors.TemplateProcessing("$A <end>", special_tokens=[("<end>", END)])
    model.save_pretrained(arguments.folder)
    tokenizer.save(str(arguments.folder / "tokenizer.json"))
    if arguments.kind == "m2m":
        write_ct2(model, tokenizer, arguments.folder / "ct2")
    if arguments.gguf:
        write_gguf(model, tokenizer, arguments.folder / "model.gguf")


if __name__ == "__main__":
    main()
