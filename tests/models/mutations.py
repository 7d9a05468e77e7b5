"""The changes that a checkpoint's folder must survive with the right numbers or a refusal: one key of one JSON file, or one tensor.

A mutation is plain data, so that it can be recorded: a kind, where, and a value. apply() makes the files and tensors of a
folder from those of a case. No torch is needed here.
"""
import json
import math
import zlib

import numpy as np

import checkpoint

GONE = "<gone>"

# Strings that another value of a key may be, by a part of the key's name; the first that fits counts.
WORDS = [
    (("hidden_act", "activation", "_act", "dense_act_fn", "act_fn"),
     ["gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh", "tanh", "quick_gelu", "gelu_fast", "gelu_10", "relu2", "swish"]),
    (("rope_type", "type_of_positions"), ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "su"]),
    (("position_embedding_type",), ["absolute", "relative_key", "relative_key_query"]),
    (("feed_forward_proj",), ["relu", "gated-gelu", "gated-silu", "gelu", "gated-relu"]),
    (("norm_rel_ebd",), ["none", "layer_norm"]),
    (("pos_att_type",), ["c2p", "p2c", "c2p|p2c", "p2c|c2p"]),
    (("classifier_pooling", "pooling_mode"), ["cls", "mean", "max"]),
    (("layer_types",), ["full_attention", "sliding_attention"]),
    (("pooler_act",), ["tanh", "gelu", "relu"]),
    (("problem_type",), ["regression", "single_label_classification", "multi_label_classification"]),
    (("early_stopping",), ["never"]),
    (("dtype",), ["float16", "bfloat16", "float32"]),
]
LISTS = {  # other lists of these keys
    "pos_att_type": [["c2p"], ["p2c"], ["c2p", "p2c"], ["p2p"], []],
    "layer_types": [["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"],
                    ["full_attention", "full_attention"], ["sliding_attention", "sliding_attention"]],
    "mlp_layer_types": [["dense", "dense"], ["sparse", "sparse"], ["dense", "sparse"]],
    "mrope_section": [[0, 2, 0], [2, 0, 0]],
    "no_rope_layers": [[0, 1], [1, 1], [0, 0]],
    "eos_token_id": [[2, 17, 30], [17]],
    "suppress_tokens": [[3, 4, 5, 6, 7, 8]],
    "begin_suppress_tokens": [[16, 17, 24, 30]],
    "bad_words_ids": [[[16], [17], [24], [30]]],
    "forced_decoder_ids": [[[1, 7], [2, 9]]],
    "mamba_dt_limit": [[0.0, 1.0], [0.0, 0.5]],
}
SHARES = ("dropout", "drop_path_rate", "drop_rate", "layerdrop", "_prob", "pdrop", "jitter")  # numbers from 0 to 1
TOKENS = ("token_id", "forced_", "suppress_tokens", "decoder_start", "bad_words")

# Keys that are no part of a tiny config, and values for them. Added to each folder, one at a time.
ADDED = {
    "num_hidden_layers": [1, 3], "n_layer": [1, 3], "n_layers": [1, 3], "num_layers": [1, 3], "num_attention_heads": [2, 8],
    "n_head": [2, 8], "hidden_size": [16, 64], "n_embd": [16, 64], "n_embed": [16, 64], "d_model": [16, 64], "intermediate_size": [24],
    "n_inner": [24], "ffn_hidden_size": [24], "head_dim": [4, 16], "max_position_embeddings": [8, 4096], "n_positions": [8, 4096],
    "vocab_size": [20, 80], "num_key_value_heads": [1, 4], "num_kv_heads": [1, 4],
    "rope_theta": [500.0], "rotary_pct": [0.5, 1.0], "partial_rotary_factor": [0.5], "rotary_emb_base": [500],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}],
    "rope_parameters": [{"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}, {"rope_type": "default", "rope_theta": 500.0}],
    "sliding_window": [3], "use_sliding_window": [True], "layer_types": LISTS["layer_types"][:2], "sliding_window_pattern": [2],
    "max_window_layers": [1], "no_rope_layers": [[0, 1]], "no_rope_layer_interval": [2], "is_gated_act": [True, False],
    "attention_bias": [True, False], "mlp_bias": [True], "use_bias": [False], "qkv_bias": [False], "bias": [True], "enable_bias": [False],
    "hidden_act": ["relu", "gelu"], "activation_function": ["relu", "gelu"], "hidden_activation": ["relu"], "activation": ["relu", "gelu"],
    "layer_norm_eps": [0.1], "layer_norm_epsilon": [0.1], "rms_norm_eps": [0.1], "norm_eps": [0.1], "norm_epsilon": [0.1],
    "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "scale_embedding": [True], "logit_scale": [2.0],
    "apply_residual_connection_post_layernorm": [True], "normalize_before": [True, False], "add_final_layer_norm": [True],
    "normalize_embedding": [True, False], "do_layer_norm_before": [False], "_remove_final_layer_norm": [True],
    "tie_word_embeddings": [True, False], "is_decoder": [True, False], "is_causal": [False], "add_cross_attention": [True],
    "use_bidirectional_attention": [True], "tie_encoder_decoder": [True], "is_encoder_decoder": [True, False],
    "chunk_size_feed_forward": [1], "pruned_heads": [{"0": [1]}], "cross_attention_hidden_size": [8],
    "num_hidden_groups": [2], "inner_group_num": [2], "embedding_size": [16, 48], "type_vocab_size": [1, 4],
    "position_embedding_type": ["relative_key"], "relative_attention": [False, True], "position_biased_input": [True, False],
    "attn_logit_softcapping": [1.0], "final_logit_softcapping": [1.0], "query_pre_attn_scalar": [5], "attention_multiplier": [0.3],
    "residual_multiplier": [0.5], "embedding_multiplier": [3.0], "logits_scaling": [4.0], "parallel_attn": [False],
    "use_parallel_residual": [False], "qk_layernorm": [True], "use_qk_norm": [True], "clip_qkv": [0.1],
    "num_experts_per_tok": [1], "norm_topk_prob": [True, False], "mlp_only_layers": [[0]], "decoder_sparse_step": [2],
    "_attn_implementation": ["eager"], "attn_implementation": ["eager"], "auto_map": [{}], "output_hidden_states": [True],
    "output_attentions": [True], "return_dict": [True, False], "id2label": [], "label2id": [], "quantization_config": [{}],
    "task_specific_params": [{"summarization": {"max_length": 9}}], "transformers.js_config": [{}], "finetuning_task": ["mnli"],
    "torchscript": [True], "gradient_checkpointing": [True], "pretraining_tp": [2], "problem_type": ["regression"],
    "text_config_dict": [{"hidden_size": 8}], "vision_config_dict": [{"hidden_size": 8}],
    "scale_dreams": [3], "z_steps": [1], "conv_kernel_size": [3], "use_swiglu_ffn": [True], "mlp_ratio": [2], "use_mean_pooling": [False],
    "eos_token_id": [5, [2, 17, 30]], "pad_token_id": [5], "bos_token_id": [5], "decoder_start_token_id": [5],
    "forced_eos_token_id": [5], "forced_bos_token_id": [5], "suppress_tokens": [[3, 4, 5, 6, 7, 8]], "begin_suppress_tokens": [[16, 17, 24, 30]],
    "num_beams": [3], "max_length": [9], "min_length": [14], "repetition_penalty": [1.7], "no_repeat_ngram_size": [1],
    "length_penalty": [0.2], "do_sample": [True], "temperature": [0.5], "top_k": [1], "bad_words_ids": [[[16], [17], [24], [30]]],
}
ADDED_TO_GENERATION = {
    "eos_token_id": [5, [2, 17, 30]], "pad_token_id": [5], "bos_token_id": [5], "decoder_start_token_id": [5],
    "forced_eos_token_id": [5], "forced_bos_token_id": [5], "suppress_tokens": [[3, 4, 5, 6, 7, 8]],
    "begin_suppress_tokens": [[16, 17, 24, 30]], "num_beams": [3], "max_length": [11, 13], "max_new_tokens": [2], "min_length": [14],
    "min_new_tokens": [4], "repetition_penalty": [1.7], "encoder_repetition_penalty": [1.7], "no_repeat_ngram_size": [1],
    "encoder_no_repeat_ngram_size": [1], "length_penalty": [0.2], "early_stopping": [True], "num_return_sequences": [1],
    "temperature": [0.5], "top_k": [1], "top_p": [0.4], "min_p": [0.3], "typical_p": [0.4], "epsilon_cutoff": [0.1], "eta_cutoff": [0.1],
    "do_sample": [True], "bad_words_ids": [[[16], [17], [24], [30]]], "sequence_bias": [[[[16], -9.0]]], "guidance_scale": [2.0],
    "exponential_decay_length_penalty": [[1, 1.5]], "remove_invalid_values": [True], "renormalize_logits": [True],
    "num_beam_groups": [1], "diversity_penalty": [0.0], "use_cache": [False], "cache_implementation": ["static"],
    "output_attentions": [True], "output_hidden_states": [True], "output_scores": [True], "output_logits": [True],
    "return_dict_in_generate": [True], "return_timestamps": [True], "forced_decoder_ids": [[[1, 7], [2, 9]]], "is_multilingual": [False],
    "lang_to_id": [{"<|en|>": 5}], "task_to_id": [{"transcribe": 6}], "no_timestamps_token_id": [7], "prev_sot_token_id": [8],
    "alignment_heads": [[[0, 0]]], "max_initial_timestamp_index": [50], "transformers_version": ["4.1.0"], "_from_model_config": [True, False],
    "stop_strings": [["a"]], "max_time": [9.0], "watermarking_config": [{"greenlist_ratio": 0.5}], "token_healing": [True],
    "prompt_lookup_num_tokens": [2], "assistant_early_exit": [1], "dola_layers": ["low"], "penalty_alpha": [0.6], "low_memory": [True],
    "constraints": [[]], "force_words_ids": [[[16]]], "trust_remote_code": [True], "custom_generate": ["x"], "chat_format": ["chatml"],
    "scale_dreams": [3],
}
# Keys of the files of sentence transformers, by a part of the file's name.
TASKS = ["feature-extraction", "fill-mask", "text-generation", "sequence-classification", "retrieval", "any-to-any"]
NAMES = ["token_embeddings", "sentence_embedding", "causal_logits", "something"]
ADDED_TO_TEXT = {
    "max_seq_length": [5, 400], "do_lower_case": [True, False], "transformer_task": TASKS, "module_output_name": NAMES,
    "modality_config": [{"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                        {"text": {"method": "forward", "method_output_name": "logits"}}, {}],
    "model_args": [{"num_hidden_layers": 1}, {"dtype": "bfloat16"}, {}], "model_kwargs": [{"attn_implementation": "sdpa"}, {}],
    "config_args": [{"num_hidden_layers": 1}, {"hidden_act": "relu"}, {}], "config_kwargs": [{"layer_norm_eps": 0.1}, {}],
    "tokenizer_args": [{"padding_side": "left"}, {}], "processor_kwargs": [{"do_lower_case": True}, {}], "unpad_inputs": [True, False],
    "query_expansion": [{"max_length": 6}], "tokenizer_name_or_path": ["something"], "processing_kwargs": [{}], "scale_dreams": [3],
}
ADDED_TO_PACKAGE = {
    "model_type": ["SentenceTransformer", "CrossEncoder", "SparseEncoder", "MultiVectorEncoder", "something"],
    "activation_fn": ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"], "similarity_fn_name": ["dot", "cosine"],
    "prompts": [{"query": "w1 "}], "default_prompt_name": ["query"], "truncate_dim": [8], "__version__": [{"pytorch": "2.0"}],
    "num_labels": [2], "scale_dreams": [3],
}
ADDED_TO_MODULE = {
    "use_residual": [True, False], "bias": [False], "module_input_name": NAMES, "module_output_name": NAMES, "chunk_size": [2],
    "activation_function": ["torch.nn.modules.activation.ReLU"], "word_embedding_dimension": [24], "embedding_dimension": [24],
    "pooling_strategy": ["sum"], "false_token_id": [4], "keep_only_token_ids": [[5, 7]], "skiplist_words": [["w5"]],
    "skiplist_tasks": ["query"], "scale_dreams": [3],
}
MODULES = ["sentence_transformers.models.Normalize", "sentence_transformers.models.Pooling", "sentence_transformers.models.Transformer",
           "sentence_transformers.models.Dense", "sentence_transformers.models.LayerNorm", "sentence_transformers.models.CNN",
           "sentence_transformers.models.StaticEmbedding", "sentence_transformers.sparse_encoder.models.SpladePooling", "mine.Module"]
ACTIVATIONS = ["torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.GELU",
               "torch.nn.modules.activation.SiLU", "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity",
               "torch.nn.modules.activation.LeakyReLU", "torch.nn.ReLU"]
ADDED_TO_POOLING = {"include_prompt": [False], "word_embedding_dimension": [24], "embedding_dimension": [24], "scale_dreams": [3],
                    "pooling_mode_lasttoken": [True], "pooling_mode_weightedmean_tokens": [True], "pooling_mode_max_tokens": [True],
                    "pooling_mode_mean_sqrt_len_tokens": [True], "pooling_mode": ["cls", "mean", "max"]}


def others(key, value):
    """Values that the key may have in the place of this one: of its type, none, and of other types."""
    kept = []
    for x in [*of_its_type(key, value), *of_other_types(value)]:
        if not same(x, value) and not any(same(x, y) for y in kept):
            kept.append(x)
    return kept


def of_other_types(value):
    """What a person or an exporter may write by mistake: numbers as texts, wholes with a fraction, one for a list of one."""
    if isinstance(value, bool):
        return [int(value), int(not value), str(value).lower(), [value]]
    if isinstance(value, int):
        return [float(value), value + 0.5, -1, str(value), True, [value], {}]
    if isinstance(value, float):
        return [int(value), -0.5, str(value), True, [value], {}]
    if isinstance(value, str):
        return ["", 1, True, [value], {}]
    if isinstance(value, list):
        return [*value[:1], "something", 1, True, {}, *of_other_elements(value)]
    return [] if value is None else ["something", 1, True, []]


def of_other_elements(values):
    """The same list with the first element, or the last, of another type, or none."""
    if not values or isinstance(values[0], dict):
        return []
    return [[x, *values[1:]] for x in [*of_other_types(values[0]), None]] + [[*values[:-1], x] for x in [*of_other_types(values[-1]), None]]


def of_its_type(key, value):
    name = key.lower()
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, (int, float)) and any(part in name for part in SHARES):
        return [0.0, 0.25, 0.5, None, *([1 - value] if isinstance(value, int) else [])]
    if isinstance(value, int):
        more = [7, 16, 39] if any(part in name for part in TOKENS) else [value * 4]
        found = [value + 1, value // 2, value * 2, 0, 1, 2, *more, None, *LISTS.get(key, [])]
    elif isinstance(value, float):
        small = 100.0 if "theta" in name or "base" in name else 0.1  # a base below 1: f32 rounds the angles too much to compare
        found = [value / 2, value * 2, 0.0, 1.0, small, None]
    elif isinstance(value, str) and value.startswith(("sentence_transformers.", "torch.nn.")):
        found = [*(MODULES if value.startswith("s") else ACTIVATIONS), "something", None]
    elif isinstance(value, str):
        found = next((words for parts, words in WORDS if any(p in name for p in parts)), []) + ["something", None]
    elif isinstance(value, list):
        swapped = [value[-1], *value[1:-1], value[0]] if len(value) > 1 else []
        deeper = [[x, *value[1:]] for x in of_its_type(key, value[0]) if x is not None] if value else []
        found = [value[:-1], value + value[-1:], swapped, [], *deeper, *LISTS.get(key, []), None]
    elif value is None:
        found = ADDED.get(key, ADDED_TO_GENERATION.get(key, [True, 1, 0.5, "something"]))
    else:
        found = [{}, None]
    return found


def same(a, b):
    return type(a) is type(b) and a == b


def places(content, path=()):
    """Every key as a path, those of objects within lists and objects too."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(content, dict):
            yield (*path, key), value
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield from places(value, (*path, key))


def added_to(file):
    if file == "config.json":
        return ADDED
    if file == "generation_config.json":
        return ADDED_TO_GENERATION
    found = {"sentence_bert_config.json": ADDED_TO_TEXT, "config_sentence_transformers.json": ADDED_TO_PACKAGE}.get(file)
    return found or (ADDED_TO_POOLING if "_Pooling" in file else ADDED_TO_MODULE if "/" in file else {})


def of_files(files, more_keys=()):
    """Each key of each file with other values, without it, and keys that are not there."""
    files = {k: v for k, v in files.items() if k != "tokenizer.json"}
    if "modules.json" in files:
        files = dict.fromkeys(("sentence_bert_config.json", "config_sentence_transformers.json"), {}) | files
        for i, module in enumerate(files["modules.json"]):
            yield ["json", "modules.json", [i], GONE]
            for other in ([], "something", None, {}, files["modules.json"][i - 1]):
                yield ["json", "modules.json", [i], other]
            yield ["json", "modules.json", [i, "kwargs"], ["task"]]
    for file, content in files.items():
        for path, value in places(content):
            if path[-1] in ("id2label", "label2id") or "label2id" in path or path[:-1] == ("id2label",) and path[-1] != "0":
                continue
            yield ["json", file, list(path), GONE]
            for other in others(str(path[-1]), value):
                yield ["json", file, list(path), other]
        if not isinstance(content, dict):
            continue
        for key, values in added_to(file).items():
            for value in [*values, None] if key not in content else ():
                yield ["json", file, [key], value]
        for key in more_keys if file == "config.json" else ():
            for value in [*guessed(key), None] if key not in content and key not in ADDED else ():
                yield ["json", file, [key], value]
    for file, content in files.items():
        if file != "config.json" and content:
            yield ["file", file, [], GONE]


def guessed(key):
    """Values for a key that only a list of ignored keys, or a family, names."""
    name = key.lower()
    if any(part in name for part in SHARES):
        return [0.25]
    if "token_id" in name:
        return [5]
    if name in ("id2label", "label2id"):
        return []
    words = next((words for parts, words in WORDS if any(p in name for p in parts)), None)
    return words[:3] if words else [True, False, 1, 2, 0.5, "something", *LISTS.get(key, [])]


def aliases(config, alias_of):
    """A key under its other name, alone and beside the first with another value. alias_of: other name -> name."""
    for alias, name in alias_of.items():
        if name in config and alias not in config:
            yield ["alias", "config.json", [name, alias], True]
            for other in [*others(name, config[name])[:2], None]:
                yield ["json", "config.json", [alias], other]


def of_rotations(config):
    """All the ways in which exporters have written how positions turn: changes of several keys at once."""
    if "rope_parameters" not in config:
        return
    linear, both = dict(type="linear", factor=2.0), dict(full_attention=dict(rope_type="default", rope_theta=500.0),
                                                         sliding_attention=dict(rope_type="default", rope_theta=300.0))
    without = [{}, dict(rope_theta=500.0), dict(rope_theta=None), dict(rope_theta=500.0, rope_scaling=None),
               dict(rope_theta=500.0, rope_scaling={}), dict(rope_theta=500.0, rope_scaling=linear), dict(rope_scaling=linear),
               dict(rope_scaling=dict(rope_type="default")), dict(rope_scaling=dict(rope_theta=500.0)), dict(rope_scaling=dict(factor=2.0)),
               dict(rope_scaling=linear | dict(rope_type="linear")), dict(rope_scaling=linear | dict(rope_type="default")),
               dict(rope_theta=500.0, rope_scaling=dict(rope_type="default", rope_theta=300.0)), dict(partial_rotary_factor=0.5),
               dict(rotary_pct=0.5), dict(rotary_pct=None), dict(rotary_emb_base=500), dict(rotary_emb_base=None),
               dict(rotary_emb_base=500, rope_theta=300.0), dict(rope_local_base_freq=500.0), dict(rope_local_base_freq=None),
               dict(global_rope_theta=500.0), dict(local_rope_theta=500.0), dict(global_rope_theta=None), dict(local_rope_theta=None)]
    within = [dict(rope_theta=500.0), dict(rope_type="default"), linear, linear | dict(rope_theta=500.0), both,
              dict(full_attention=both["full_attention"]), dict(full_attention=dict(rope_theta=500.0)),
              dict(full_attention=dict(rope_type="default")), dict(sliding_attention=both["sliding_attention"]),
              both | dict(rope_theta=200.0), both | dict(sliding_attention=None), dict(rope_theta=500.0, partial_rotary_factor=0.5)]
    beside = [{}, dict(rope_theta=500.0), dict(rope_theta=200.0), dict(rope_theta=None), dict(rope_scaling=linear)]
    for change in without:
        yield ["keys", "config.json", ["rope_parameters", *change], dict(rope_parameters=GONE) | change]
    for inner in within:
        for change in beside:
            yield ["keys", "config.json", ["rope_parameters", *change], dict(rope_parameters=inner) | change]


def of_tensors(shapes):
    for name, shape in shapes.items():
        yield ["tensor", name, ["remove"], None]
        yield ["tensor", name, ["rename"], name + "_other"]
        yield ["tensor", name, ["double"], None]
        yield ["tensor", name, ["f16"], None]
        longer = [[*shape[:-1], shape[-1] + 1], [shape[0] + 2, *shape[1:]]] if shape else [[2]]
        for other in (*longer, shape[::-1], [1, *shape], [math.prod(shape)]):
            if other != shape:
                yield ["tensor", name, ["reshape"], list(other)]
        stem, _, kind = name.rpartition(".")
        if kind == "weight" and f"{stem}.bias" not in shapes:
            yield ["tensor", f"{stem}.bias", ["add"], [shape[0]]]
        if kind == "bias" and f"{stem}.weight" not in shapes:
            yield ["tensor", f"{stem}.weight", ["add"], list(shape)]
        if ".1." in name:
            yield ["tensor", name.replace(".1.", ".7."), ["add"], list(shape)]
    yield ["tensor", "lm_head.weight" if "lm_head.weight" not in shapes else "head.weight", ["add"], list(next(iter(shapes.values())))]
    yield ["tensor", "something.weight", ["add"], [3]]


def copied(content):
    return json.loads(json.dumps(content))


def changed_json(content, path, value):
    content = copied(content)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(value, str) and value == GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


def with_tensor(tensors, name, what, value):
    tensors = dict(tensors)
    if what == "remove":
        del tensors[name]
    elif what == "rename":
        tensors[value] = tensors.pop(name)
    elif what == "double":
        tensors[name] = tensors[name] * np.float32(2)
    elif what == "f16":
        tensors[name] = tensors[name].astype(np.float16)
    else:  # add, reshape: the numbers of the old one as far as they reach
        old = tensors[name].reshape(-1) if name in tensors else np.linspace(-0.5, 0.5, math.prod(value), dtype=np.float32)
        tensors[name] = np.resize(old, value)
    return tensors


def apply(mutation, files, tensors):
    """The files and the tensors of the changed folder."""
    kind, where, path, value = mutation[-4:] if mutation[0][:6] != "tokens" else (mutation[0], None, None, None)
    if kind == "file":
        return {k: v for k, v in files.items() if k != where}, tensors
    if kind == "json":
        return files | {where: changed_json(files.get(where, {}), path, value)}, tensors
    if kind == "keys":
        config = files[where] | value
        return files | {where: {k: v for k, v in config.items() if v != GONE}}, tensors
    if kind.startswith("tokens"):
        alone = {k: v for k, v in files.items() if k != "generation_config.json" or kind == "tokens"}
        return apply(mutation[1:], alone, tensors)
    if kind == "alias":
        config = files[where]
        return files | {where: {path[1] if k == path[0] else k: v for k, v in config.items()}}, tensors
    return files, with_tensor(tensors, where, path[0], value)


def fitting(mutation, files, shapes, new_files, tensors):
    """A mutation that makes these files and tensors, whose numbers come from their names, of those of the case."""
    old, new = files["config.json"], new_files["config.json"]
    config = {k: v for k, v in new.items() if not same(v, old.get(k, GONE))} | {k: GONE for k in old if k not in new}
    other = {n: list(t.shape) for n, t in tensors.items() if shapes.get(n) != list(t.shape)}
    return ["made", text(mutation), config, other | {n: GONE for n in shapes if n not in tensors}]


def made(mutation, case):
    """The files and tensors of what fitting() gave."""
    _, _, config, other = mutation
    new = case["files"]["config.json"] | config
    files = {"config.json": {k: v for k, v in new.items() if v != GONE}}
    shapes = {n: s for n, s in (case["weights"] | other).items() if s != GONE}
    tensors = {n: np.array(checkpoint.weight(n, s, case["gain"]), order="C") for n, s in shapes.items()}
    return {k: v for k, v in case["files"].items() if k not in ("config.json", "generation_config.json")} | files, tensors


def with_early_end(case):
    """The files of a case that writes: a token that is written is the end, so that one can see what becomes of it."""
    if not case.get("grows"):
        return case["files"]
    start = 1 if case["encoder"] else len(case["inputs"][case["grows"]][0])
    row = case["tokens"]["1"][0]
    end = row[min(start + 2, len(row) - 1)]
    return case["files"] | {name: case["files"][name] | dict(eos_token_id=end) for name in ("config.json", "generation_config.json")
                            if "eos_token_id" in case["files"].get(name, {})}


def shortened(arrays):
    """Of each output three sums with weights that depend on its name, and its largest number."""
    found = {}
    for name, array in arrays.items():
        flat = np.asarray(array, np.float64).reshape(-1)
        weights = np.random.RandomState(zlib.crc32(name.encode())).standard_normal((3, flat.size)) / max(1, flat.size) ** 0.5
        found[name] = [float(f"{x:.9g}") for x in (*(weights @ flat), np.abs(flat).max(initial=0))]
    return found


def text(mutation):
    where, path, value = mutation[-3:]
    return f"{where}: {'.'.join(map(str, path))} = {json.dumps(value)}"
