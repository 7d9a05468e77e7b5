"""Cases of make_cases.py for the text part of folders whose models read pictures too: as save_pretrained writes them, and as
they were first published.
"""
import copy

import torch
import transformers as hf

LOGITS = dict(logits="logits")
TEXT = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
PICTURES = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)


# The whole of Llama 4 asks its part for text for this, which is not there in transformers 5.24.
hf.models.llama4.modeling_llama4.MoeCausalLMOutputWithPast.image_outputs = None


def rows():
    return torch.randint(3, 36, (2, 12), generator=torch.Generator().manual_seed(11))


def more(**changes):
    return dict(inputs=dict(input_ids=rows()), outputs=LOGITS, grows="input_ids", gain=0.25) | changes


def made(kind, config):
    """Of a config.json as it was published, which stays as it is: transformers writes into what it is given."""
    return kind(**copy.deepcopy({k: v for k, v in config.items() if k not in ("model_type", "architectures", "transformers_version")}))


def gemmas(case):
    full = dict(rope_type="linear", factor=8.0, rope_theta=1000000.0)
    text = TEXT | dict(num_hidden_layers=4, head_dim=16, sliding_window=5, query_pre_attn_scalar=12,
                       layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                       rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
    seen = dict(mm_tokens_per_image=4, image_token_index=39, boi_token_index=37, eoi_token_index=38)
    whole = hf.Gemma3Config(text_config=text, vision_config=hf.SiglipVisionConfig(**PICTURES), **seen)
    case("gemma3_pictures", hf.Gemma3ForConditionalGeneration(whole), **more())
    # What google/gemma-3-4b-it says, smaller: most settings of the text are left to the class.
    text = dict(vocab_size=40, hidden_size=16, intermediate_size=24, model_type="gemma3_text", num_hidden_layers=6,
                rope_scaling=dict(factor=8.0, rope_type="linear"), sliding_window=5)
    first = dict(architectures=["Gemma3ForConditionalGeneration"], boi_token_index=37, eoi_token_index=38, eos_token_id=[2, 5],
                 image_token_index=39, initializer_range=0.02, mm_tokens_per_image=4, model_type="gemma3", text_config=text,
                 torch_dtype="float32", transformers_version="4.50.0.dev0", vision_config=PICTURES | dict(
                     model_type="siglip_vision_model", vision_use_head=False))
    said = dict(bos_token_id=1, cache_implementation="hybrid", eos_token_id=[2, 5], pad_token_id=0, transformers_version="4.50.0.dev0")
    case("gemma3_pictures_first", hf.Gemma3ForConditionalGeneration(made(hf.Gemma3Config, first)),
         **more(files={"config.json": first, "generation_config.json": said}))


def fourth_gemmas(case):
    small = TEXT | dict(num_hidden_layers=6, head_dim=8, global_head_dim=16, sliding_window=5, hidden_size_per_layer_input=0,
                        vocab_size_per_layer_input=40)
    own = small | dict(hidden_size_per_layer_input=4, layer_types=["sliding_attention", "full_attention"] * 3)
    kind, config = hf.Gemma4ForCausalLM, hf.Gemma4TextConfig
    case("gemma4", kind(config(**small, attention_bias=True)), **more())
    case("gemma4_tables", kind(config(**own, num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=5.0)), **more())
    case("gemma4_one", kind(config(**small, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_activation="silu")), **more())
    experts = dict(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=8)
    case("gemma4_experts", kind(config(**small, **experts, rope_parameters=dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1000.0),
        sliding_attention=dict(rope_type="default", rope_theta=100.0)))), **more(options=["--require-fusion=experts"]))
    looks = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                 patch_size=4, position_embedding_size=16)
    hears = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, subsampling_conv_channels=[4, 4], output_proj_dims=16)
    seen = dict(image_token_id=39, video_token_id=38, audio_token_id=37, boi_token_id=36, eoi_token_id=36, boa_token_id=36,
                eoa_token_index=36)
    whole = hf.Gemma4Config(text_config=own, vision_config=looks, audio_config=hears, **seen)
    case("gemma4_whole", hf.Gemma4ForConditionalGeneration(whole), **more())
    # With the sizes of the layers that see all beside the others, and positions left to the class.
    first = small | dict(model_type="gemma4_text", architectures=["Gemma4ForCausalLM"], num_global_key_value_heads=None,
                         transformers_version="5.5.0", dtype="float32")
    case("gemma4_first", kind(made(config, first)), **more(files={"config.json": first}))


def mistrals(case):
    seen = dict(vision_config=hf.PixtralVisionConfig(**PICTURES), image_token_index=39)
    case("mistral3_pictures", hf.Mistral3ForConditionalGeneration(hf.Mistral3Config(
        text_config=hf.MistralConfig(**TEXT, sliding_window=None), **seen)), **more())
    case("mistral3_untied", hf.Mistral3ForConditionalGeneration(hf.Mistral3Config(
        text_config=hf.MistralConfig(**TEXT, sliding_window=5), tie_word_embeddings=False, **seen)), **more())
    case("ministral3_pictures", hf.Mistral3ForConditionalGeneration(hf.Mistral3Config(
        text_config=hf.Ministral3Config(**TEXT, head_dim=8), **seen)), **more())
    seen = dict(vision_config=hf.CLIPVisionConfig(**PICTURES), image_token_index=39)
    case("llava", hf.LlavaForConditionalGeneration(hf.LlavaConfig(text_config=hf.LlamaConfig(**TEXT), **seen)), **more())
    seen = dict(vision_config=hf.InternVLVisionConfig(**PICTURES), image_token_id=39)
    case("internvl", hf.InternVLForConditionalGeneration(hf.InternVLConfig(text_config=hf.Qwen2Config(**TEXT), **seen)), **more())
    case("internvl_qwen3", hf.InternVLForConditionalGeneration(hf.InternVLConfig(
        text_config=hf.Qwen3Config(**TEXT, head_dim=8), tie_word_embeddings=False, **seen)), **more())
    text = hf.LlamaConfig(**TEXT, rope_parameters=dict(rope_type="default", rope_theta=1000.0))
    for kind, config, looks in ((hf.SmolVLMForConditionalGeneration, hf.SmolVLMConfig, hf.models.smolvlm.SmolVLMVisionConfig),
                                (hf.Idefics3ForConditionalGeneration, hf.Idefics3Config, hf.models.idefics3.Idefics3VisionConfig)):
        whole = config(text_config=text, vision_config=looks(**PICTURES), image_token_id=39, pad_token_id=0)
        case(config.model_type, kind(whole), **more())


def qwens(case):
    seen = dict(image_token_id=39, video_token_id=38, vision_start_token_id=36, vision_end_token_id=37)
    looks = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, temporal_patch_size=1, out_hidden_size=16)
    mrope = dict(rope_type="default", rope_theta=1000.0, mrope_section=[1, 0, 1])
    whole = hf.Qwen2_5_VLConfig(text_config=TEXT | dict(rope_parameters=mrope), vision_config=looks, **seen)
    case("qwen2_5_vl", hf.Qwen2_5_VLForConditionalGeneration(whole), **more())
    # What Qwen/Qwen2.5-VL-3B-Instruct says, smaller: the settings of the text stand beside the others.
    first = TEXT | seen | dict(architectures=["Qwen2_5_VLForConditionalGeneration"], attention_dropout=0.0, vision_token_id=35,
                               hidden_act="silu", initializer_range=0.02, max_window_layers=70, model_type="qwen2_5_vl",
                               rms_norm_eps=1e-06, rope_theta=1000000.0, sliding_window=32768, tie_word_embeddings=True,
                               torch_dtype="float32", transformers_version="4.41.2", use_cache=True, use_sliding_window=False,
                               vision_config=looks, rope_scaling=dict(type="mrope", mrope_section=[1, 0, 1]))
    case("qwen2_5_vl_first", hf.Qwen2_5_VLForConditionalGeneration(made(hf.Qwen2_5_VLConfig, first)), **more(files={"config.json": first}))
    whole = hf.Qwen2VLConfig(text_config=TEXT | dict(rope_parameters=mrope, hidden_act="gelu"), vision_config=dict(
        depth=1, embed_dim=8, hidden_size=16, num_heads=1, patch_size=2, temporal_patch_size=1), tie_word_embeddings=True, **seen)
    case("qwen2_vl", hf.Qwen2VLForConditionalGeneration(whole), **more())
    mrope = dict(rope_type="default", rope_theta=1000000.0, mrope_section=[2, 1, 1], mrope_interleaved=True)
    text = {k: v for k, v in TEXT.items() if k not in ("bos_token_id", "eos_token_id")}
    looks = looks | dict(num_position_embeddings=4, deepstack_visual_indexes=[0])
    said = dict(bos_token_id=1, eos_token_id=[2, 5], pad_token_id=0, transformers_version="5.24.0")
    for name, changes in (("qwen3_vl", {}), ("qwen3_vl_biased", dict(attention_bias=True, num_key_value_heads=4))):
        whole = hf.Qwen3VLConfig(text_config=text | dict(head_dim=8, rope_parameters=mrope) | changes, vision_config=looks,
                                 tie_word_embeddings=bool(changes), **seen)
        case(name, hf.Qwen3VLForConditionalGeneration(whole), **more(files={"generation_config.json": said}))


def fourth_llamas(case):
    small = dict(vocab_size=40, hidden_size=32, intermediate_size=16, intermediate_size_mlp=40, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                 num_local_experts=4, attention_chunk_size=4, floor_scale=3)
    scaled = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    kind, config = hf.Llama4ForCausalLM, hf.Llama4TextConfig
    fused = more(gain=0.2, options=["--require-fusion=attention", "--require-fusion=experts"])
    case("llama4", kind(config(**small)), **fused)
    case("llama4_dense", kind(config(**small, moe_layers=[], use_qk_norm=False, hidden_act="gelu", no_rope_layers=[0, 1, 1, 0])),
         **more(gain=0.2, options=["--require-fusion=attention"]))
    case("llama4_two", kind(config(**small | dict(num_experts_per_tok=2, interleave_moe_layer_step=2, attention_bias=True,
         attn_temperature_tuning=False, tie_word_embeddings=True, no_rope_layer_interval=3, rope_parameters=scaled))), **fused)
    case("llama4_kinds", kind(config(**small | dict(moe_layers=[1, 2], attention_chunk_size=5,
         layer_types=["full_attention", "chunked_attention", "chunked_attention", "full_attention"]))), **fused)
    looks = dict(hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4,
                 vision_output_dim=16, projector_input_dim=16, projector_output_dim=16)
    seen = dict(vision_config=looks, boi_token_index=37, eoi_token_index=38, image_token_index=39)
    case("llama4_pictures", hf.Llama4ForConditionalGeneration(hf.Llama4Config(text_config=small, **seen)), **fused)
    # What meta-llama/Llama-4-Scout-17B-16E says, smaller.
    text = small | dict(model_type="llama4_text", _attn_implementation_autoset=True, attention_bias=False, attention_dropout=0.0,
                        attn_scale=0.1, attn_temperature_tuning=True, for_llm_compressor=False, hidden_act="silu", initializer_range=0.02,
                        interleave_moe_layer_step=1, moe_layers=[0, 1, 2, 3], no_rope_layers=[1, 1, 1, 0], num_experts_per_tok=1,
                        output_router_logits=False, rms_norm_eps=1e-05, rope_scaling={k: v for k, v in scaled.items() if k != "rope_theta"},
                        rope_theta=500000.0, router_aux_loss_coef=0.001, router_jitter_noise=0.0, torch_dtype="float32", use_cache=True,
                        use_qk_norm=True)
    first = dict(model_type="llama4", architectures=["Llama4ForConditionalGeneration"], text_config=text, torch_dtype="float32",
                 transformers_version="4.51.0.dev0", **seen)
    case("llama4_first", hf.Llama4ForConditionalGeneration(made(hf.Llama4Config, first)), **fused | dict(files={"config.json": first}))


def make(case):
    fourth_llamas(case)
    gemmas(case)
    fourth_gemmas(case)
    mistrals(case)
    qwens(case)
