#!/usr/bin/env python3
"""Makes hf-* cases of architectures that version 1.0 of the language could not say, or not in one file: layers that differ
by their place, convolutions, experts, positions that are gathered.

usage: make_families.py [NAME...]

Like make_hf.py, whose parts it uses: a tiny model of Hugging Face transformers with random weights, the file that
save_pretrained writes, and what the library's modelling code computes, eager attention, float32. (Falcon's eager attention adds the distances twice; its other one
does not.)
"""
import sys

import torch
import transformers

from make_hf import case, ids

DECODER = dict(vocab_size=64, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
               max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
ENCODER = dict(vocab_size=60, hidden_size=32, num_attention_heads=4, intermediate_size=48, max_position_embeddings=32,
               pad_token_id=0)
FAMILIES = {}


def family(function):
    FAMILIES[function.__name__.replace("_", "-")] = function
    return function


def normal(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def decoder(name, model, seed, note, gain=1.1, length=19, **more):
    def run(model):
        input_ids, _ = ids(seed + 100, [length, length], 64)
        return dict(input_ids=input_ids), dict(logits=model(input_ids=input_ids).logits)

    case(f"hf-{name}", model, seed, run, note, gain=gain, **more)


def encoder(name, model, seed, note, outputs=("last_hidden_state",), gain=1.2, **more):
    def run(model):
        input_ids, mask = ids(seed + 100, [13, 7, 10], 60)
        out = model(input_ids=input_ids, attention_mask=mask)
        kept = {key: out[key] * (mask[..., None] if out[key].ndim == 3 else 1) for key in outputs}
        return dict(input_ids=input_ids, attention_mask=mask), kept

    case(f"hf-{name}", model, seed, run, note, gain=gain, **more)


@family
def gemma2():
    decoder("gemma2", transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **DECODER, num_hidden_layers=4, head_dim=16, sliding_window=5, query_pre_attn_scalar=12)), 61,
        "Gemma2ForCausalLM: every second layer sees a window, scores and logits are capped, norms before and behind each part.", gain=0.9)


@family
def smollm3():
    decoder("smollm3", transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        **DECODER, num_hidden_layers=4, no_rope_layer_interval=4)), 62,
        "SmolLM3ForCausalLM: every fourth layer has no positions.")


@family
def modernbert():
    encoder("modernbert", transformers.ModernBertModel(transformers.ModernBertConfig(
        **ENCODER, num_hidden_layers=4, global_attn_every_n_layers=3, local_attention=6, cls_token_id=1, sep_token_id=2,
        bos_token_id=1, eos_token_id=2)), 63,
        "ModernBertModel: every third layer sees everything, with angles of its own; the first has no norm before attention.")


@family
def deberta_v2():
    encoder("deberta-v2", transformers.DebertaV2Model(transformers.DebertaV2Config(
        **ENCODER, num_hidden_layers=2, relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0)), 64,
        "DebertaV2Model: scores of content to position and position to content, gathered by logarithmic buckets of distances.")


@family
def whisper():
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=60, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=15, max_target_positions=20,
        pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2))

    def run(model):
        written, _ = ids(165, [9, 9], 60)
        inputs = dict(input_features=normal(5, 2, 8, 30), decoder_input_ids=written)
        out = model(**inputs)
        return inputs, dict(logits=out.logits, encoded=out.encoder_last_hidden_state)

    case("hf-whisper", model, 65, run, "WhisperForConditionalGeneration, front included: two convolutions, one of stride 2; an "
         "encoder and a decoder.", gain=1.1)


@family
def convnext():
    model = transformers.ConvNextModel(transformers.ConvNextConfig(
        num_channels=3, patch_size=2, num_stages=3, hidden_sizes=[8, 16, 24], depths=[1, 2, 1], layer_scale_init_value=0.5))

    def run(model):
        pixels = normal(6, 2, 3, 24, 16)
        out = model(pixel_values=pixels)
        return dict(pixel_values=pixels), dict(last_hidden_state=out.last_hidden_state, pooler_output=out.pooler_output)

    case("hf-convnext", model, 66, run, "ConvNextModel: stages of other depths and widths, each behind a convolution that halves "
         "the picture; depthwise convolutions of 7 x 7.", gain=1.2)


@family
def mixtral():
    decoder("mixtral", transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **DECODER, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)), 67,
        "MixtralForCausalLM: each position goes through two of four experts.")


@family
def falcon_rw():
    decoder("falcon-rw", transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=64, hidden_size=36, num_hidden_layers=2, num_attention_heads=6, alibi=True, parallel_attn=False, bias=True,
        multi_query=False, new_decoder_architecture=False, bos_token_id=1, eos_token_id=2)), 68,
        "FalconForCausalLM as Falcon-RW: scores fall with the distance (ALiBi), for six heads, no power of two.", attention="sdpa")


@family
def qwen2_windows():
    decoder("qwen2-windows", transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        **DECODER, num_hidden_layers=4, use_sliding_window=True, sliding_window=4, max_window_layers=2)), 69,
        "Qwen2ForCausalLM with windows: the first two layers see everything, the others a window.")


@family
def swin():
    model = transformers.SwinModel(transformers.SwinConfig(
        image_size=32, patch_size=4, num_channels=3, embed_dim=12, depths=[2, 2], num_heads=[2, 4], window_size=4, mlp_ratio=2.0))

    def run(model):
        pixels = normal(7, 2, 3, 32, 32)
        out = model(pixel_values=pixels)
        return dict(pixel_values=pixels), dict(last_hidden_state=out.last_hidden_state, pooler_output=out.pooler_output)

    case("hf-swin", model, 70, run, "SwinModel: attention in windows, shifted in every second layer, with a table of distances; "
         "stages of other widths, four places merged into one between them.", gain=1.2)


@family
def wav2vec2():
    model = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
        conv_dim=(12, 12, 12), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4, mask_time_prob=0.0, apply_spec_augment=False))

    def run(model):
        sound = normal(8, 2, 400)
        return dict(input_values=sound), dict(last_hidden_state=model(sound).last_hidden_state)

    case("hf-wav2vec2", model, 71, run, "Wav2Vec2Model: convolutions of strides 5, 2, 2 from samples to frames, a norm of channels "
         "behind the first, positions by a convolution in groups whose weight is stored as length and direction.", gain=1.2)


@family
def gpt_neo():
    decoder("gpt-neo", transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(
        vocab_size=64, hidden_size=32, num_layers=4, attention_types=[[["global", "local"], 2]], num_heads=4, window_size=4,
        intermediate_size=48, max_position_embeddings=40, bos_token_id=1, eos_token_id=2)), 72,
        "GPTNeoForCausalLM: every second layer sees a window; scores are not scaled.")


@family
def cohere2():
    decoder("cohere2", transformers.Cohere2ForCausalLM(transformers.Cohere2Config(
        **DECODER, num_hidden_layers=4, sliding_window=4, logit_scale=0.25)), 74,
        "Cohere2ForCausalLM: three layers of four rotate and see a window, the fourth has no positions; both parts of a layer in parallel.")


if __name__ == "__main__":
    for name in sys.argv[1:] or FAMILIES:
        FAMILIES[name]()
