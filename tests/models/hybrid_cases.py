"""Cases of make_cases.py for models whose layers keep a state: short convolutions, the selective scan of Mamba 2, the gated delta
rule, alone and beside attention.
"""
import torch
import transformers as hf

LOGITS = dict(logits="logits")
SMALL = dict(vocab_size=24, hidden_size=16, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
HEADS = dict(num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, max_position_embeddings=64)


def rows():
    return torch.randint(3, 24, (2, 8), generator=torch.Generator().manual_seed(6))


def more(**changes):
    return dict(inputs=dict(input_ids=rows()), outputs=LOGITS, grows="input_ids", gain=0.25) | changes


def short_convolutions(case):
    kinds = ["conv", "full_attention", "conv"]
    small = SMALL | HEADS | dict(num_hidden_layers=3)
    lfm2 = small | dict(layer_types=kinds, block_multiple_of=8)
    case("lfm2", hf.Lfm2ForCausalLM(hf.Lfm2Config(**lfm2)), **more())
    wide = lfm2 | dict(block_ffn_dim_multiplier=1.3, block_multiple_of=12, conv_bias=True, conv_L_cache=4, tie_word_embeddings=False, norm_eps=1e-3)
    case("lfm2_wide", hf.Lfm2ForCausalLM(hf.Lfm2Config(**wide)), **more())
    first = {k: v for k, v in small.items() if k != "intermediate_size"} | dict(
        model_type="lfm2", architectures=["Lfm2ForCausalLM"], block_auto_adjust_ff_dim=False, block_dim=16, block_ff_dim=24,
        block_ffn_dim_multiplier=1.0, block_mlp_init_scale=1.0, block_multiple_of=256, block_norm_eps=1e-05, block_out_init_scale=1.0,
        block_use_swiglu=True, block_use_xavier_init=True, conv_L_cache=3, conv_bias=False, conv_dim=16, conv_dim_out=16,
        conv_use_xavier_init=True, full_attn_idxs=[1], initializer_range=0.02, norm_eps=1e-05, num_heads=4, rope_theta=10000.0, theta=10000.0,
        tie_embedding=True, torch_dtype="float32", transformers_version="4.54.0.dev0", use_cache=True, use_pos_enc=True)
    case("lfm2_first", hf.Lfm2ForCausalLM(hf.Lfm2Config(**{k: v for k, v in first.items() if k != "model_type"})), **more(
        files={"config.json": first}))
    experts = small | dict(layer_types=kinds, num_dense_layers=1, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
    case("lfm2_moe", hf.Lfm2MoeForCausalLM(hf.Lfm2MoeConfig(**experts)), **more(options=["--require-fusion=experts"]))
    case("lfm2_moe_plain", hf.Lfm2MoeForCausalLM(hf.Lfm2MoeConfig(**experts | dict(use_expert_bias=False, norm_topk_prob=False,
         routed_scaling_factor=1.5, num_dense_layers=0))), **more())


def scans(case):
    """Models of transformers whose cached steps forget the limits of time steps write without a cache (`whole`)."""
    small = SMALL | dict(num_heads=4, head_dim=8, state_size=6, n_groups=2)
    case("mamba2", hf.Mamba2ForCausalLM(hf.Mamba2Config(**small)), **more())
    old = SMALL | dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], num_heads=2, head_dim=24, expand=3, state_size=5, n_groups=1,
                       use_bias=True, use_conv_bias=False, conv_kernel=3, hidden_act="gelu", layer_norm_epsilon=1e-3, time_step_limit=[0.6, 0.8],
                       tie_word_embeddings=True, chunk_size=4, norm_before_gate=True, rms_norm=True, torch_dtype="float32",
                       residual_in_fp32=True, rescale_prenorm_residual=False, time_step_floor=0.0001, time_step_max=0.1, time_step_min=0.001,
                       time_step_rank=48, use_cache=False, transformers_version="4.45.0")
    case("mamba2_limits", hf.Mamba2ForCausalLM(hf.Mamba2Config(**{k: v for k, v in old.items() if k != "model_type"})),
         **more(files={"config.json": old}, whole=True))
    mixer = dict(mamba_n_heads=4, mamba_d_head=8, mamba_d_state=6)
    bamba = SMALL | HEADS | mixer | dict(num_hidden_layers=3)
    case("bamba", hf.BambaForCausalLM(hf.BambaConfig(**bamba, attn_layer_indices=[1], mamba_n_groups=2)), **more())
    case("bamba_biases", hf.BambaForCausalLM(hf.BambaConfig(**bamba | dict(mamba_proj_bias=True, mamba_conv_bias=False, attention_bias=True,
         mlp_bias=True, hidden_act="gelu", attn_layer_indices=[0, 2], mamba_d_head="auto", time_step_limit=[0.3, 0.9], tie_word_embeddings=True,
         rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0)))), **more(whole=True))
    falcon = SMALL | HEADS | mixer | dict(mamba_d_ssm=24, mamba_d_head="auto")
    factors = dict(lm_head_multiplier=0.5, embedding_multiplier=1.5, mlp_multipliers=[1.1, 0.9], key_multiplier=1.3, attention_in_multiplier=0.9,
                   attention_out_multiplier=1.2, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], ssm_in_multiplier=1.25, ssm_out_multiplier=0.8)
    case("falcon_h1", hf.FalconH1ForCausalLM(hf.FalconH1Config(**falcon, **factors)), **more())
    case("falcon_h1_normed", hf.FalconH1ForCausalLM(hf.FalconH1Config(**falcon | dict(mamba_rms_norm=True, mamba_n_groups=2, mamba_d_ssm=None,
         mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True), **factors)), **more())
    case("falcon_h1_behind", hf.FalconH1ForCausalLM(hf.FalconH1Config(**falcon, mamba_rms_norm=True, mamba_norm_before_gate=False,
         time_step_limit=[0.3, 0.9])), **more(whole=True))
    granite = SMALL | HEADS | mixer | dict(num_hidden_layers=3, shared_intermediate_size=10, layer_types=["mamba", "attention", "mamba"],
        embedding_multiplier=1.5, attention_multiplier=0.4, residual_multiplier=0.7, logits_scaling=2.0)
    case("granite_hybrid", hf.GraniteMoeHybridForCausalLM(hf.GraniteMoeHybridConfig(**granite, num_local_experts=4)),
         **more(options=["--require-fusion=experts"]))
    case("granite_hybrid_dense", hf.GraniteMoeHybridForCausalLM(hf.GraniteMoeHybridConfig(**granite | dict(num_local_experts=0, mamba_n_groups=2,
         position_embedding_type="rope", attention_bias=True, mamba_proj_bias=True, mamba_conv_bias=False, tie_word_embeddings=True,
         layer_types=["attention", "mamba", "attention"]))), **more())


def nemotrons(case):
    small = SMALL | HEADS | dict(mamba_num_heads=4, mamba_head_dim=8, ssm_state_size=6, n_groups=2, head_dim=8, n_routed_experts=4,
                                 moe_intermediate_size=8, moe_shared_expert_intermediate_size=12, tie_word_embeddings=False)
    del small["num_hidden_layers"]
    kinds = ["linear_attention", "moe", "full_attention", "mlp"]
    case("nemotron_h", hf.NemotronHForCausalLM(hf.NemotronHConfig(**small, layers_block_type=kinds)), **more())
    first = small | dict(model_type="nemotron_h", architectures=["NemotronHForCausalLM"], hybrid_override_pattern="ME*-M", num_hidden_layers=5,
                         use_bias=True, use_conv_bias=False, mlp_bias=True, mlp_hidden_act="silu", mamba_hidden_act="gelu", moe_latent_size=8,
                         n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=False, layer_norm_epsilon=1e-4, time_step_min=0.6,
                         time_step_limit=[0.0, 5.0], torch_dtype="float32", rope_theta=10000, norm_eps=1e-05, transformers_version="4.48.0")
    case("nemotron_h_first", hf.NemotronHForCausalLM(hf.NemotronHConfig(**{k: v for k, v in first.items() if k != "model_type"})),
         **more(files={"config.json": first}, whole=True))


def stacked(shapes):
    """Experts as the first folders have them, all in one tensor."""
    found = {}
    for name, shape in shapes.items():
        place, _, inside = name.partition(".experts.")
        number, _, kind = inside.partition(".")
        if not inside:
            found[name] = shape
        elif number == "0" and kind != "gate_proj.weight":
            up = kind == "up_proj.weight"
            found[place + (".experts.gate_up_proj" if up else ".experts.down_proj")] = [4, 2 * shape[0] if up else shape[0], shape[1]]
    return found


def delta_rules(case):
    delta = dict(linear_key_head_dim=4, linear_value_head_dim=6, linear_num_key_heads=2, linear_num_value_heads=4)
    small = SMALL | HEADS | delta | dict(head_dim=8, layer_types=["linear_attention", "full_attention"])
    experts = dict(moe_intermediate_size=8, shared_expert_intermediate_size=12, num_experts=4, num_experts_per_tok=2)
    fused = more(options=["--require-fusion=experts"])
    case("qwen3_next", hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**small, **experts, norm_topk_prob=False, decoder_sparse_step=2)), **fused)
    first = {k: v for k, v in small.items() if k != "layer_types"} | experts | dict(
        model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], num_hidden_layers=3, decoder_sparse_step=1, full_attention_interval=2,
        partial_rotary_factor=0.5, rope_theta=1000, rope_scaling=None, mlp_only_layers=[0], norm_topk_prob=True, use_sliding_window=False,
        attention_bias=True, hidden_act="gelu", linear_conv_kernel_dim=3, tie_word_embeddings=True, rms_norm_eps=1e-05,
        torch_dtype="float32", transformers_version="4.57.0.dev0")
    case("qwen3_next_first", hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**{k: v for k, v in first.items() if k != "model_type"})),
         **fused | dict(files={"config.json": first}))
    mrope = dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.75, mrope_section=[1, 1, 1], mrope_interleaved=True)
    case("qwen3_5", hf.Qwen3_5ForCausalLM(hf.Qwen3_5TextConfig(**small, rope_parameters=mrope)), **more())
    moe = {k: v for k, v in (small | experts).items() if k != "intermediate_size"}
    case("qwen3_5_moe", hf.Qwen3_5MoeForCausalLM(hf.Qwen3_5MoeTextConfig(**moe)), **fused)
    pictures = dict(depth=1, hidden_size=4, intermediate_size=4, num_heads=1, patch_size=2, temporal_patch_size=1, out_hidden_size=4,
                    num_position_embeddings=4, in_channels=1)
    whole = hf.Qwen3_5Config(text_config=small | dict(rope_parameters=mrope), vision_config=pictures | dict(out_hidden_size=16),
                             tie_word_embeddings=True)
    case("qwen3_5_pictures", hf.Qwen3_5ForConditionalGeneration(whole), **more())
    whole = hf.Qwen3_5MoeConfig(text_config=moe, vision_config=pictures | dict(out_hidden_size=16))
    case("qwen3_5_moe_stacked", hf.Qwen3_5MoeForConditionalGeneration(whole), **fused, weights=stacked)
    olmo = SMALL | HEADS | delta | dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"])
    case("olmo_hybrid", hf.OlmoHybridForCausalLM(hf.OlmoHybridConfig(**olmo)), **more())
    plain = SMALL | {k: v for k, v in HEADS.items() if k != "num_key_value_heads"} | dict(num_hidden_layers=5, attention_bias=True,
        linear_allow_neg_eigval=False, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=None))
    case("olmo_hybrid_unturned", hf.OlmoHybridForCausalLM(hf.OlmoHybridConfig(**plain)), **more())


def latents(case):
    small = {k: v for k, v in (SMALL | HEADS).items() if k != "num_key_value_heads"} | dict(num_key_value_heads=4,
        kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4, moe_intermediate_size=8, num_experts_per_tok=2)
    attention = more(options=["--require-fusion=attention", "--require-fusion=experts"])
    glm = small | dict(num_hidden_layers=3, n_routed_experts=4, q_lora_rank=6)
    case("glm4_moe_lite", hf.Glm4MoeLiteForCausalLM(hf.Glm4MoeLiteConfig(**glm)), **attention)
    case("glm4_moe_lite_groups", hf.Glm4MoeLiteForCausalLM(hf.Glm4MoeLiteConfig(**glm | dict(q_lora_rank=None, n_group=2, topk_group=1,
         n_shared_experts=2, norm_topk_prob=False, rope_interleave=False, attention_bias=True, tie_word_embeddings=True,
         mlp_layer_types=["sparse", "dense", "sparse"]))), **more())
    kimi = small | dict(num_hidden_layers=3, num_local_experts=4, linear_head_dim=4, linear_num_heads=3)
    case("kimi_linear", hf.KimiLinearForCausalLM(hf.KimiLinearConfig(**kimi, layer_types=["linear_attention", "full_attention",
         "linear_attention"])), **attention)
    names = dict(num_experts_per_tok="num_experts_per_token", num_local_experts="num_experts", max_position_embeddings="model_max_length")
    first = {names.get(k, k): v for k, v in kimi.items() if not k.startswith("linear")} | dict(
        model_type="kimi_linear", architectures=["KimiLinearForCausalLM"], first_k_dense_replace=2, head_dim=4, hidden_act="silu",
        linear_attn_config=dict(full_attn_layers=[1, 3], kda_layers=[2], head_dim=4, num_heads=2, short_conv_kernel_size=3), mla_use_nope=True,
        moe_layer_freq=1, moe_renormalize=False, moe_router_activation_func="sigmoid", num_expert_group=2, topk_group=1, num_shared_experts=2,
        num_nextn_predict_layers=0, q_lora_rank=6, rms_norm_eps=1e-4, rope_scaling=None, rope_theta=10000.0, routed_scaling_factor=1.5,
        use_grouped_topk=True, tie_word_embeddings=False, dtype="float32", transformers_version="4.57.1")
    case("kimi_linear_first", hf.KimiLinearForCausalLM(hf.KimiLinearConfig(**{k: v for k, v in first.items() if k != "model_type"})),
         **more(files={"config.json": first}))


def make(case):
    short_convolutions(case)
    scans(case)
    nemotrons(case)
    delta_rules(case)
    latents(case)
