#!/usr/bin/env python3
"""usage: make_cases.py FOLDER [CASE ...]

Writes what test_models.py compares with: for each case the config of a tiny model of transformers, the names and shapes of its
weights (their numbers come from checkpoint.py), inputs, and what transformers computes: outputs in f32 with eager
attention and, for models that write, tokens, greedily and with 3 beams; then the same for other weights and inputs
(`second`). Needs torch and transformers.
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import transformers as hf
from safetensors import safe_open

import checkpoint
import encoder_cases
import hybrid_cases
import picture_cases
import sentence_cases
import sound_cases
import text_part_cases

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()
TARGET, ONLY = pathlib.Path(sys.argv[1]), sys.argv[2:]


def prepared(model, gain, files, sines, seed, attention, modules=(), weights=None):
    """The model, and modules of sentence transformers behind it, read back from a folder with the weights of checkpoint.py;
    the folder's files, names and shapes."""
    fixed = {name for name, p in model.named_parameters() if not (p.requires_grad or sines)}  # which the family computes
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.eval().float().save_pretrained(folder)
        places = sentence_cases.save(modules, folder)
        shapes = {}
        for path in sorted(folder.rglob("model.safetensors")):
            place = "" if path.parent == folder else f"{path.parent.name}/"
            with safe_open(path, "numpy") as file:
                shapes |= {place + name: list(file.get_slice(name).get_shape()) for name in file.keys() if name not in fixed}
        files = {str(p.relative_to(folder)): json.loads(p.read_text()) for p in sorted(folder.rglob("*.json"))} | files
        shapes = weights(shapes) if weights else shapes
        checkpoint.write(dict(files=files, weights=shapes, gain=gain), folder, seed)
        ready = type(model).from_pretrained(folder, attn_implementation=attention).eval().float()
        return ready, files, shapes, [type(m).load(str(place)).eval() for m, place in zip(modules, places)]


def numbers(tensor):
    if not tensor.is_floating_point():
        return tensor.tolist()
    return json.loads(json.dumps(tensor.tolist()), parse_float=lambda text: float(f"{float(text):.7g}"))


def tokens(model, inputs, grows, whole):
    found = {}
    for beams in (1, 3):
        given = {k: v for k, v in inputs.items() if k != grows or not model.config.is_encoder_decoder}
        made = hf.GenerationMixin.generate(model, **given, num_beams=beams, do_sample=False, max_new_tokens=6,
                                           use_cache=not whole)
        found[str(beams)] = made.tolist()
    return found


def computed(model, inputs, outputs, grows, take, whole):
    made = take(model, inputs) if take else model(**inputs)
    found = dict(outputs={k: numbers(made[v]) for k, v in outputs.items()})
    return found | (dict(tokens=tokens(model, inputs, grows, whole)) if grows else {})


def keep(name, case, target=TARGET):
    if not ONLY or name in ONLY:
        (target / f"{name}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n")
        print(name, (target / f"{name}.json").stat().st_size, flush=True)


def keep_table(name, case):
    """Of a folder that transformers knows nothing of."""
    keep(name, case, TARGET.parent / "tables")


def keep_by_hand(name, case):
    """Of a model that transformers has no class for."""
    keep(name, case, TARGET.parent / "by_hand")


def case(name, model, inputs, outputs, masked=None, gain=0.25, grows=None, files={}, take=None, sines=False, options=(),
         attention="eager", modules=(), whole=False, weights=None):
    """outputs: names here -> names of transformers; masked: rows compared where this input is not 0; options: of tfmc;
    modules: of sentence transformers, whose vectors are the output; whole: each token is made without a cache;
    weights: of the names and shapes that save_pretrained writes those of another layout."""
    if ONLY and name not in ONLY:
        return
    with torch.no_grad():
        ready, saved, shapes, behind = prepared(model, gain, files, sines, 0, attention, modules, weights)
        take = sentence_cases.take(behind) if behind else take
        case = dict(files=saved, weights=shapes, gain=gain, inputs={k: numbers(v) for k, v in inputs.items()}, masked=masked)
        case |= computed(ready, inputs, outputs, grows, take, whole)
        if grows:
            case |= dict(grows=grows, encoder=bool(ready.config.is_encoder_decoder))
        if options:
            case["options"] = options
        other = {k: torch.from_numpy(checkpoint.turned(v.numpy())) for k, v in inputs.items()}
        ready, _, _, behind = prepared(model, gain, files, sines, 1, attention, modules, weights)
        case["second"] = computed(ready, other, outputs, grows, sentence_cases.take(behind) if behind else take, whole)
    keep(name, case)


def ids(seed, lengths, vocab, pad=0, low=3):
    g = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), pad)
    mask = torch.zeros_like(rows)
    for row, keep, n in zip(rows, mask, lengths):
        row[:n] = torch.randint(low, vocab, (n,), generator=g)
        keep[:n] = 1
    return rows, mask


HIDDEN, LOGITS = dict(last_hidden_state="last_hidden_state"), dict(logits="logits")
POOLED = HIDDEN | dict(pooler_output="pooler_output")


def encoders():
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=20)
    rows, mask = ids(2, [9, 5], 40)
    inputs = dict(input_ids=rows, attention_mask=mask)
    config = hf.BertConfig
    case("bert", hf.BertModel(config(**small)), inputs, POOLED)
    case("bert_relu", hf.BertModel(config(**small, hidden_act="relu")), inputs, POOLED, gain=0.3)
    case("bert_tanh_gelu", hf.BertModel(config(**small, hidden_act="gelu_new"), add_pooling_layer=False), inputs, HIDDEN)
    case("bert_classify", hf.BertForSequenceClassification(config(**small, num_labels=3)), inputs, LOGITS)
    case("bert_tokens", hf.BertForTokenClassification(config(**small, num_labels=5)), inputs, LOGITS)
    case("bert_answer", hf.BertForQuestionAnswering(config(**small)), inputs,
         dict(start_logits="start_logits", end_logits="end_logits"))
    case("bert_mask", hf.BertForMaskedLM(config(**small)), inputs, LOGITS)
    roberta = small | dict(max_position_embeddings=26, pad_token_id=1)
    rows1, mask1 = ids(2, [9, 5], 40, pad=1)
    inputs1 = dict(input_ids=rows1, attention_mask=mask1)
    sentence_cases.make(case, small, inputs, inputs1)
    case("roberta", hf.RobertaModel(hf.RobertaConfig(**roberta, type_vocab_size=1), add_pooling_layer=False), inputs1, HIDDEN,
         masked="attention_mask")
    case("roberta_classify", hf.RobertaForSequenceClassification(hf.RobertaConfig(**roberta, num_labels=3)), inputs1, LOGITS)
    case("roberta_mask", hf.RobertaForMaskedLM(hf.RobertaConfig(**roberta)), inputs1, LOGITS, masked="attention_mask")
    case("xlm_roberta", hf.XLMRobertaModel(hf.XLMRobertaConfig(**roberta), add_pooling_layer=False), inputs1, HIDDEN,
         masked="attention_mask")
    case("camembert", hf.CamembertModel(hf.CamembertConfig(**roberta), add_pooling_layer=False), inputs1, HIDDEN,
         masked="attention_mask")
    electra = small | dict(embedding_size=16)
    case("electra", hf.ElectraModel(hf.ElectraConfig(**electra)), inputs, HIDDEN)
    case("electra_classify", hf.ElectraForSequenceClassification(hf.ElectraConfig(**electra, num_labels=3)), inputs, LOGITS)
    distil = hf.DistilBertConfig
    sizes = dict(vocab_size=40, dim=24, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=20)
    case("distilbert", hf.DistilBertModel(distil(**sizes)), inputs, HIDDEN)
    case("distilbert_classify", hf.DistilBertForSequenceClassification(distil(**sizes, num_labels=3)), inputs, LOGITS)
    case("albert", hf.AlbertModel(hf.AlbertConfig(**small, embedding_size=16)), inputs, POOLED)
    case("mpnet", hf.MPNetModel(hf.MPNetConfig(**roberta), add_pooling_layer=False), inputs1, HIDDEN, masked="attention_mask")


SPANS = dict(start_logits="start_logits", end_logits="end_logits")


def pairs(lengths, vocab, pad=0, first=0):
    """Inputs of rows of two texts each, padded behind; places of which some stand twice, as packed texts have them."""
    rows, mask = ids(12, lengths, vocab, pad=pad)
    kinds, places = torch.zeros_like(rows), torch.zeros_like(rows)
    for i, n in enumerate(lengths):
        kinds[i, n // 2:n] = 1
        places[i] = first + torch.arange(rows.shape[1]) % (n - 2)
    return dict(input_ids=rows, attention_mask=mask, token_type_ids=kinds, position_ids=places)


def only(inputs, *names):
    return {name: inputs[name] for name in names}


def two_texts():
    """What the classes take beside ids: kinds of tokens, places, masks, each given or left out; heads over them."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=20)
    every = pairs([9, 6], 40)
    two = only(every, "input_ids", "attention_mask", "token_type_ids")
    placed = only(every, "input_ids", "attention_mask", "position_ids")
    alone = only(every, "input_ids")
    bert = hf.BertConfig(**small)
    case("bert_pairs", hf.BertModel(bert), every, POOLED)
    case("bert_alone", hf.BertModel(bert), alone, POOLED)
    case("bert_unmasked", hf.BertModel(bert), only(every, "input_ids", "token_type_ids"), POOLED)
    case("bert_pairs_classify", hf.BertForSequenceClassification(hf.BertConfig(**small, num_labels=3)), two, LOGITS)
    case("bert_pairs_tokens", hf.BertForTokenClassification(hf.BertConfig(**small, num_labels=5)), two, LOGITS)
    case("bert_pairs_answer", hf.BertForQuestionAnswering(bert), two, SPANS)
    case("bert_pairs_mask", hf.BertForMaskedLM(bert), two, LOGITS)
    case("bert_next", hf.BertForNextSentencePrediction(bert), two, LOGITS)
    case("bert_pretrain", hf.BertForPreTraining(bert), two,
         dict(prediction_logits="prediction_logits", seq_relationship_logits="seq_relationship_logits"))
    electra = hf.ElectraConfig(**small, embedding_size=16, num_labels=3)
    case("electra_pairs", hf.ElectraModel(electra), every, HIDDEN)
    case("electra_pairs_classify", hf.ElectraForSequenceClassification(electra), two, LOGITS)
    case("electra_tokens", hf.ElectraForTokenClassification(electra), two, LOGITS)
    case("electra_answer", hf.ElectraForQuestionAnswering(hf.ElectraConfig(**small, embedding_size=16)), two, SPANS)
    case("electra_mask", hf.ElectraForMaskedLM(electra), two, LOGITS)
    case("electra_pretrain", hf.ElectraForPreTraining(electra), two, LOGITS)
    albert = hf.AlbertConfig(**small, embedding_size=16, num_labels=3)
    case("albert_pairs", hf.AlbertModel(albert), every, POOLED)
    case("albert_classify", hf.AlbertForSequenceClassification(albert), two, LOGITS)
    case("albert_tokens", hf.AlbertForTokenClassification(albert), two, LOGITS)
    case("albert_answer", hf.AlbertForQuestionAnswering(hf.AlbertConfig(**small, embedding_size=16)), two, SPANS)
    case("albert_mask", hf.AlbertForMaskedLM(albert), two, LOGITS)
    distil = hf.DistilBertConfig(vocab_size=40, dim=24, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=20, num_labels=3)
    case("distilbert_placed", hf.DistilBertModel(distil), placed, HIDDEN)
    case("distilbert_alone", hf.DistilBertModel(distil), alone, HIDDEN)
    case("distilbert_tokens", hf.DistilBertForTokenClassification(distil), placed, LOGITS)
    case("distilbert_answer", hf.DistilBertForQuestionAnswering(hf.DistilBertConfig(**distil.to_dict() | dict(num_labels=2))), placed, SPANS)
    case("distilbert_mask", hf.DistilBertForMaskedLM(distil), placed, LOGITS)
    case("nomic_pairs", hf.NomicBertModel(hf.NomicBertConfig(**small, head_dim=6)), two, HIDDEN, masked="attention_mask")
    modern = hf.ModernBertConfig(**small, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=6)
    case("modernbert_alone", hf.ModernBertModel(modern), alone, HIDDEN)
    deberta = small | dict(relative_attention=True, position_buckets=4, norm_rel_ebd="layer_norm", share_att_key=True,
                           pos_att_type=["p2c", "c2p"], type_vocab_size=2, position_biased_input=True)
    case("deberta_pairs", hf.DebertaV2Model(hf.DebertaV2Config(**deberta)), every, HIDDEN, masked="attention_mask")
    case("deberta_pairs_answer", hf.DebertaV2ForQuestionAnswering(hf.DebertaV2Config(**deberta)), two, SPANS, masked="attention_mask")
    case("deberta_untyped", hf.DebertaV2Model(hf.DebertaV2Config(**deberta | dict(type_vocab_size=0, position_biased_input=False))), every,
         HIDDEN, masked="attention_mask")


def counted_places():
    """RoBERTa's and MPNet's places count the tokens that are no padding, wherever padding stands."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=26, pad_token_id=1)
    every = pairs([9, 6], 40, pad=1, first=2)
    every["token_type_ids"] *= 0
    front = only(every, "input_ids", "attention_mask")
    front = {k: torch.stack([row.roll(shift) for row, shift in zip(v, (0, 3))]) for k, v in front.items()}
    roberta = hf.RobertaConfig(**small, type_vocab_size=1)
    case("roberta_front", hf.RobertaModel(roberta, add_pooling_layer=False), front, HIDDEN)
    case("roberta_placed", hf.RobertaModel(roberta, add_pooling_layer=False), every, HIDDEN)
    case("roberta_pairs", hf.RobertaModel(hf.RobertaConfig(**small, type_vocab_size=2)), pairs([9, 6], 40, pad=1, first=2), POOLED)
    case("roberta_alone", hf.RobertaModel(roberta, add_pooling_layer=False), only(front, "input_ids"), HIDDEN)
    case("roberta_tokens", hf.RobertaForTokenClassification(hf.RobertaConfig(**small, num_labels=5)), front, LOGITS)
    case("roberta_answer", hf.RobertaForQuestionAnswering(roberta), front, SPANS)
    mpnet = hf.MPNetConfig(**small, num_labels=3)
    case("mpnet_front", hf.MPNetModel(mpnet, add_pooling_layer=False), front, HIDDEN)
    case("mpnet_placed", hf.MPNetModel(mpnet, add_pooling_layer=False), only(every, "input_ids", "attention_mask", "position_ids"), HIDDEN)
    buckets = hf.MPNetConfig(**small, relative_attention_num_buckets=64)  # of which 32 are read
    case("mpnet_buckets", hf.MPNetModel(buckets, add_pooling_layer=False), front, HIDDEN)
    case("mpnet_classify", hf.MPNetForSequenceClassification(mpnet), front, LOGITS)
    case("mpnet_tokens", hf.MPNetForTokenClassification(mpnet), front, LOGITS)
    case("mpnet_answer", hf.MPNetForQuestionAnswering(hf.MPNetConfig(**small)), front, SPANS)
    case("mpnet_mask", hf.MPNetForMaskedLM(mpnet), front, LOGITS)


def debertas():
    """v2 has a convolution beside the first layer and tables of their own for places; v3 shares those of the words."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=24, relative_attention=True, position_biased_input=False)
    rows, mask = ids(2, [17, 9], 40)
    inputs = dict(input_ids=rows, attention_mask=mask)
    v3 = small | dict(position_buckets=6, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"])
    config, classify = hf.DebertaV2Config, hf.DebertaV2ForSequenceClassification
    case("deberta_v3", hf.DebertaV2Model(config(**v3)), inputs, HIDDEN, masked="attention_mask")
    case("deberta_v3_classify", classify(config(**v3, num_labels=3, type_vocab_size=2)), inputs, LOGITS)
    case("deberta_v3_mask", hf.DebertaV2ForMaskedLM(config(**v3, legacy=False)), inputs, LOGITS, masked="attention_mask")
    v2 = v3 | dict(share_att_key=False, conv_kernel_size=3, conv_act="gelu", embedding_size=16)
    case("deberta_v2", hf.DebertaV2Model(config(**v2)), inputs, HIDDEN, masked="attention_mask")
    case("deberta_v2_mask", hf.DebertaV2ForMaskedLM(config(**v2)), inputs, LOGITS, masked="attention_mask")
    case("deberta_v2_tokens", hf.DebertaV2ForTokenClassification(config(**v2 | dict(pos_att_type=["c2p"]), num_labels=5)), inputs,
         LOGITS, masked="attention_mask")
    plain = small | dict(position_biased_input=True, norm_rel_ebd="none", max_relative_positions=-1, pos_att_type=["p2c"])
    case("deberta_v2_answer", hf.DebertaV2ForQuestionAnswering(config(**plain)), inputs,
         dict(start_logits="start_logits", end_logits="end_logits"), masked="attention_mask")


def moderns():
    """Encoders without tables of places: rotations, and windows in some layers."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=4, num_attention_heads=4, intermediate_size=40, bos_token_id=1,
                 max_position_embeddings=64, pad_token_id=0, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=6)
    rows, mask = ids(2, [11, 7], 40)
    inputs = dict(input_ids=rows, attention_mask=mask)
    config = hf.ModernBertConfig
    case("modernbert", hf.ModernBertModel(config(**small)), inputs, HIDDEN, masked="attention_mask")
    biases = small | dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, num_labels=3)
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    case("modernbert_classify", hf.ModernBertForSequenceClassification(config(**biases, classifier_pooling="mean", layer_types=kinds)),
         inputs, LOGITS)
    case("modernbert_classify_cls", hf.ModernBertForSequenceClassification(config(**small, num_labels=3)), inputs, LOGITS)
    case("modernbert_mask", hf.ModernBertForMaskedLM(config(**small)), inputs, LOGITS, masked="attention_mask")
    case("modernbert_tokens", hf.ModernBertForTokenClassification(config(**small, num_labels=5)), inputs, LOGITS, masked="attention_mask")
    case("modernbert_answer", hf.ModernBertForQuestionAnswering(config(**small, num_labels=2)), inputs,
         dict(start_logits="start_logits", end_logits="end_logits"), masked="attention_mask")
    nomic = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, head_dim=8)
    case("nomic_bert", hf.NomicBertModel(hf.NomicBertConfig(**nomic)), inputs, HIDDEN, masked="attention_mask")


def writers():
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    gqa = small | dict(num_key_value_heads=2)
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    linear = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
    case("gpt2", hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64,
         bos_token_id=1, eos_token_id=2)), **more)
    llama, config = hf.LlamaForCausalLM, hf.LlamaConfig
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
    case("llama", llama(config(**gqa)), **more)
    case("llama_yarn", llama(config(**gqa, rope_parameters=yarn)), **more)
    one = yarn | dict(original_max_position_embeddings=1)  # the slow columns end before the fast ones begin
    case("llama_yarn_one", llama(config(**gqa, head_dim=16, rope_parameters=one)), **more)
    case("llama3", llama(config(**gqa, rope_parameters=llama3)), **more)
    case("llama_linear", llama(config(**gqa, rope_parameters=linear)), **more)
    case("llama_tied", llama(config(**gqa, tie_word_embeddings=True)), **more)
    case("llama_biases", llama(config(**gqa, attention_bias=True, head_dim=16)), **more)
    case("mistral", hf.MistralForCausalLM(hf.MistralConfig(**gqa, sliding_window=5)), **more)
    case("qwen2", hf.Qwen2ForCausalLM(hf.Qwen2Config(**gqa)), **more)
    case("qwen3", hf.Qwen3ForCausalLM(hf.Qwen3Config(**gqa, head_dim=16)), **more)
    kinds = ["full_attention", "sliding_attention"]
    slower = dict(rope_type="yarn", rope_theta=1000.0, factor=2.0, beta_fast=4.0, beta_slow=0.5, attention_factor=0.8)
    case("qwen3_yarn", hf.Qwen3ForCausalLM(hf.Qwen3Config(**gqa, head_dim=16, rope_parameters=slower)), **more)
    case("qwen2_windows", hf.Qwen2ForCausalLM(hf.Qwen2Config(**gqa, use_sliding_window=True, sliding_window=5, layer_types=kinds)), **more)
    case("smollm3", hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**gqa, no_rope_layers=[1, 0])), **more)
    case("phi3", hf.Phi3ForCausalLM(hf.Phi3Config(**gqa, sliding_window=5)), **more)
    small_phi = gqa | dict(original_max_position_embeddings=16)
    longrope = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3, 1.5], long_factor=[1.0, 1.5, 3.0, 7.0])
    case("phi3_longrope", hf.Phi3ForCausalLM(hf.Phi3Config(**small_phi, rope_parameters=longrope)), **more)
    far, _ = ids(7, [19, 19], 40)
    case("phi3_longrope_far", hf.Phi3ForCausalLM(hf.Phi3Config(**small_phi, rope_parameters=longrope)),
         **more | dict(inputs=dict(input_ids=far), options=["-D", "long=true"]))
    part = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3],
                long_factor=[1.0, 1.5, 3.0])
    case("phi4_mini", hf.Phi3ForCausalLM(hf.Phi3Config(**small_phi, rope_parameters=part, tie_word_embeddings=True)), **more)
    case("gemma", hf.GemmaForCausalLM(hf.GemmaConfig(**gqa, head_dim=16)), **more)
    four = gqa | dict(num_hidden_layers=4, head_dim=16, sliding_window=5, query_pre_attn_scalar=12)
    case("gemma2", hf.Gemma2ForCausalLM(hf.Gemma2Config(**four)), **more)
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    case("gemma3", hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**four, layer_types=kinds)), **more)
    half = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    case("gpt_neox", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**small, rope_parameters=half)), **more)
    case("gpt_neox_serial", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**small, use_parallel_residual=False)), **more)
    opt = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=40,
               max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    case("opt", hf.OPTForCausalLM(hf.OPTConfig(**opt, word_embed_proj_dim=32)), **more)
    case("opt_350m", hf.OPTForCausalLM(hf.OPTConfig(**opt, word_embed_proj_dim=16, do_layer_norm_before=False)), **more)
    bloom = dict(vocab_size=40, n_layer=2, bos_token_id=1, eos_token_id=2)
    case("bloom", hf.BloomForCausalLM(hf.BloomConfig(**bloom, hidden_size=32, n_head=4)), **more)
    case("bloom_six", hf.BloomForCausalLM(hf.BloomConfig(**bloom, hidden_size=24, n_head=6)), **more)
    falcon = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2,
                  alibi=False, max_position_embeddings=64, parallel_attn=True, bias=False)
    case("falcon", hf.FalconForCausalLM(hf.FalconConfig(**falcon, multi_query=True, new_decoder_architecture=False)), **more)
    case("falcon_new", hf.FalconForCausalLM(hf.FalconConfig(**falcon, num_kv_heads=2, new_decoder_architecture=True)), **more)
    rw = falcon | dict(alibi=True, parallel_attn=False, bias=True, multi_query=False, new_decoder_architecture=False)
    more["attention"] = "sdpa"  # eager attention adds the distances twice in transformers 5.23
    case("falcon_rw", hf.FalconForCausalLM(hf.FalconConfig(**rw | dict(num_attention_heads=16))), **more)
    case("falcon_rw_six", hf.FalconForCausalLM(hf.FalconConfig(**rw | dict(num_attention_heads=6, hidden_size=24))), **more)
    del more["attention"]
    case("starcoder2", hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**gqa, sliding_window=5)), **more)


def relatives():
    """Of Llama, by the switches of llama_relatives.tfm."""
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    factors = dict(embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.4, logits_scaling=0.5)
    case("granite", hf.GraniteForCausalLM(hf.GraniteConfig(**small, **factors, tie_word_embeddings=True)), **more)
    case("granite_plain", hf.GraniteForCausalLM(hf.GraniteConfig(**small, attention_bias=True, mlp_bias=True)), **more)
    case("olmo2", hf.Olmo2ForCausalLM(hf.Olmo2Config(**small)), **more)
    case("ernie4_5", hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(**small, head_dim=16)), **more)
    case("ernie4_5_biases", hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(**small, use_bias=True, tie_word_embeddings=False)), **more)
    case("seed_oss", hf.SeedOssForCausalLM(hf.SeedOssConfig(**small, head_dim=16, attention_out_bias=True)), **more)
    case("helium", hf.HeliumForCausalLM(hf.HeliumConfig(**small, head_dim=8)), **more)
    case("glm", hf.GlmForCausalLM(hf.GlmConfig(**small, head_dim=16)), **more)
    quarter = dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.25)
    case("glm4", hf.Glm4ForCausalLM(hf.Glm4Config(**small, head_dim=16, attention_bias=False, rope_parameters=quarter)), **more)


def scaled_relatives():
    """Of Llama, by the switches of llama_scaled.tfm."""
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    case("arcee", hf.ArceeForCausalLM(hf.ArceeConfig(**small, rope_parameters=yarn)), **more)
    case("arcee_biases", hf.ArceeForCausalLM(hf.ArceeConfig(**small, attention_bias=True, mlp_bias=True, head_dim=16)), **more)
    case("apertus", hf.ApertusForCausalLM(hf.ApertusConfig(**small, rope_parameters=llama3)), **more)
    kinds = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=5)
    case("exaone4", hf.Exaone4ForCausalLM(hf.Exaone4Config(**small, **kinds, rope_parameters=llama3)), **more)
    case("exaone4_whole", hf.Exaone4ForCausalLM(hf.Exaone4Config(**small, sliding_window=None, tie_word_embeddings=True,
         layer_types=["full_attention"] * 2)), **more)
    alpha = dict(rope_type="dynamic", rope_theta=10000.0, alpha=100.0, factor=1.0)
    case("hunyuan", hf.HunYuanDenseV1ForCausalLM(hf.HunYuanDenseV1Config(**small, head_dim=16, rope_parameters=alpha)), **more)
    case("hunyuan_biases", hf.HunYuanDenseV1ForCausalLM(hf.HunYuanDenseV1Config(**small, head_dim=8, attention_bias=True,
         tie_word_embeddings=True)), **more)
    far = yarn | dict(original_max_position_embeddings=4, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
    both = dict(full_attention=yarn, sliding_attention=dict(rope_type="default", rope_theta=500.0))
    four = small | kinds | dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2)
    case("olmo3", hf.Olmo3ForCausalLM(hf.Olmo3Config(**four, rope_parameters=both)), **more)
    old = small | dict(model_type="olmo3", architectures=["Olmo3ForCausalLM"], num_hidden_layers=4, rope_theta=10000.0, sliding_window=5,
                       rope_scaling={k: v for k, v in yarn.items() if k != "rope_theta"})
    case("olmo3_old", hf.Olmo3ForCausalLM(hf.Olmo3Config(**small | dict(num_hidden_layers=4))), **more, files={"config.json": old})
    case("ministral3", hf.Ministral3ForCausalLM(hf.Ministral3Config(**small, head_dim=16, rope_parameters=far)), **more)
    case("ministral3_window", hf.Ministral3ForCausalLM(hf.Ministral3Config(**small, head_dim=8, sliding_window=5,
         rope_parameters=far | dict(mscale=0.7))), **more)


def gpts():
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    ends = dict(vocab_size=40, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    small = ends | dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)
    case("gptj", hf.GPTJForCausalLM(hf.GPTJConfig(**small, rotary_dim=4)), **more)
    case("gptj_tied", hf.GPTJForCausalLM(hf.GPTJConfig(**small, rotary_dim=8, n_inner=40, tie_word_embeddings=True)), **more)
    neo = ends | dict(hidden_size=32, num_heads=4, max_position_embeddings=64, window_size=5)
    case("gpt_neo", hf.GPTNeoForCausalLM(hf.GPTNeoConfig(**neo, num_layers=4, attention_types=[[["global", "local"], 2]])), **more)
    case("gpt_neo_own_head", hf.GPTNeoForCausalLM(hf.GPTNeoConfig(**neo, num_layers=2, attention_types=[[["local"], 2]], intermediate_size=40,
         tie_word_embeddings=False)), **more)
    case("gpt_bigcode", hf.GPTBigCodeForCausalLM(hf.GPTBigCodeConfig(**small)), **more)
    case("gpt_bigcode_heads", hf.GPTBigCodeForCausalLM(hf.GPTBigCodeConfig(**small, multi_query=False, scale_attn_weights=False, n_inner=40)),
         **more)


def alibi_and_sines():
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2, options=["--require-fusion=attention"])
    ends = dict(vocab_size=40, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    mpt = ends | dict(n_layers=2, max_seq_len=64)
    case("mpt", hf.MptForCausalLM(hf.MptConfig(**mpt, d_model=32, n_heads=4)), **more)
    clipped = dict(clip_qkv=0.3, softmax_scale=0.4)
    case("mpt_six", hf.MptForCausalLM(hf.MptConfig(**mpt, d_model=24, n_heads=6, attn_config=clipped)), **more)
    xglm = ends | dict(num_layers=2, max_position_embeddings=64, ffn_dim=40)
    case("xglm", hf.XGLMForCausalLM(hf.XGLMConfig(**xglm | dict(pad_token_id=1, bos_token_id=0), d_model=32, attention_heads=4)), **more)
    case("xglm_blank", hf.XGLMForCausalLM(hf.XGLMConfig(**xglm | dict(pad_token_id=5), d_model=24, attention_heads=3,
         activation_function="relu", scale_embedding=False)), **more)


def sinks():
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2, options=["--require-fusion=experts"])
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, num_local_experts=4, num_experts_per_tok=2,
                 head_dim=16, sliding_window=5)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
                truncate=False)
    case("gpt_oss", hf.GptOssForCausalLM(hf.GptOssConfig(**small, rope_parameters=yarn)), **more)
    plain = dict(rope_type="default", rope_theta=500.0)
    case("gpt_oss_plain", hf.GptOssForCausalLM(hf.GptOssConfig(**small | dict(num_hidden_layers=3, attention_bias=False), swiglu_limit=0.4,
         swiglu_alpha=1.1, layer_types=["full_attention", "sliding_attention", "full_attention"], tie_word_embeddings=True,
         rope_parameters=plain)), **more)


def latents():
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, n_routed_experts=8, num_experts_per_tok=3,
                 moe_intermediate_size=24, kv_lora_rank=16, q_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=6,
                 first_k_dense_replace=1, n_group=4, topk_group=2)
    more["options"] = ["--require-fusion=experts", "--require-fusion=attention"]
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.7)
    case("deepseek_v3", hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**small, num_mtp_layers=0)), **more)
    case("deepseek_v3_yarn", hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**small | dict(q_lora_rank=None, n_shared_experts=2), num_mtp_layers=0,
         rope_parameters=yarn, rope_interleave=False, norm_topk_prob=False, attention_bias=True)), **more)
    case("deepseek_v2", hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(**small, topk_method="group_limited_greedy", n_shared_experts=2,
         routed_scaling_factor=1.5)), **more | dict(options=["--require-fusion=attention"]))  # scores of groups look like experts
    case("deepseek_v2_lite", hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(**small | dict(q_lora_rank=None), topk_method="greedy",
         n_shared_experts=1, rope_parameters=yarn, mlp_bias=True)), **more)


def layer_norm_relatives():
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    case("phi", hf.PhiForCausalLM(hf.PhiConfig(**small)), **more)
    case("phi_normed", hf.PhiForCausalLM(hf.PhiConfig(**small, qk_layernorm=True, hidden_act="gelu")), **more)
    old = small | dict(model_type="phi", architectures=["PhiForCausalLM"], partial_rotary_factor=0.25, rope_theta=1000.0, rope_scaling=None,
                       hidden_act="gelu_new", qk_layernorm=False, transformers_version="4.37.0")
    case("phi_old", hf.PhiForCausalLM(hf.PhiConfig(**small)), **more, files={"config.json": old})
    half = dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)
    case("stablelm", hf.StableLmForCausalLM(hf.StableLmConfig(**small, rope_parameters=half, use_qkv_bias=True)), **more)
    case("stablelm_parallel", hf.StableLmForCausalLM(hf.StableLmConfig(**small, use_parallel_residual=True, qk_layernorm=True)), **more)
    case("nemotron", hf.NemotronForCausalLM(hf.NemotronConfig(**small, head_dim=16)), **more)
    case("nemotron_biases", hf.NemotronForCausalLM(hf.NemotronConfig(**small, attention_bias=True, mlp_bias=True)), **more)
    case("cohere", hf.CohereForCausalLM(hf.CohereConfig(**small)), **more)
    case("cohere_normed", hf.CohereForCausalLM(hf.CohereConfig(**small, use_qk_norm=True, attention_bias=True, logit_scale=2.0)), **more)
    kinds = ["sliding_attention", "full_attention"]
    case("cohere2", hf.Cohere2ForCausalLM(hf.Cohere2Config(**small, sliding_window=5, layer_types=kinds)), **more)


def decoders_that_read():
    """Bodies of writers as encoders: alone, with vectors of the last token, with heads; padded behind and in front."""
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                 max_position_embeddings=64, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    rows, mask = ids(6, [9, 6], 40)
    behind = dict(input_ids=rows, attention_mask=mask)
    front = {k: torch.stack([row.roll(shift) for row, shift in zip(v, (0, 3))]) for k, v in behind.items()}
    more = dict(masked="attention_mask", gain=0.2)
    qwen3 = hf.Qwen3Config(**small, head_dim=16, num_labels=3, tie_word_embeddings=True)
    sentence_cases.decoders(case, hf.Qwen3Model(qwen3), front, "qwen3")
    sentence_cases.rerankers(case, hf.Qwen3ForCausalLM(qwen3), front, "qwen3", 30, 7)
    sentence_cases.rerankers(case, hf.LlamaForCausalLM(hf.LlamaConfig(**small)), front, "llama", 11)
    case("sentence_qwen3_first", hf.Qwen3Model(qwen3), front, sentence_cases.VECTOR, gain=0.2,
         modules=[sentence_cases.st.Pooling(32, "cls")])
    sentence_cases.decoders(case, hf.MistralModel(hf.MistralConfig(**small, sliding_window=5)), behind, "mistral")
    sentence_cases.decoders(case, hf.Qwen2ForCausalLM(hf.Qwen2Config(**small)), behind, "qwen2")
    gemma = small | dict(head_dim=8, num_hidden_layers=3, sliding_window=6, layer_types=["sliding_attention", "full_attention",
                                                                                        "sliding_attention"])
    two = hf.Gemma2Config(**gemma, num_labels=3, query_pre_attn_scalar=12)
    sentence_cases.gemma(case, hf.Gemma3TextModel(hf.Gemma3TextConfig(**gemma, use_bidirectional_attention=True)), front)
    case("gemma3_body", hf.Gemma3TextModel(hf.Gemma3TextConfig(**gemma)), behind, HIDDEN, **more)
    case("gemma2_classify", hf.Gemma2ForSequenceClassification(two), behind, LOGITS, gain=0.2)
    case("gemma2_tokens", hf.Gemma2ForTokenClassification(two), front, LOGITS, **more)
    sentence_cases.rerankers(case, hf.Gemma2ForCausalLM(two), front, "gemma2", 30, 7)
    case("llama_body", hf.LlamaModel(hf.LlamaConfig(**small, num_labels=3)), front, HIDDEN, **more)
    case("llama_classify", hf.LlamaForSequenceClassification(hf.LlamaConfig(**small, num_labels=3)), behind, LOGITS, gain=0.2)
    case("llama_tokens", hf.LlamaForTokenClassification(hf.LlamaConfig(**small, num_labels=3)), behind, LOGITS, **more)
    case("llama_answer", hf.LlamaForQuestionAnswering(hf.LlamaConfig(**small)), behind, SPANS, **more)
    case("mistral_classify", hf.MistralForSequenceClassification(hf.MistralConfig(**small, sliding_window=5, num_labels=3)), behind, LOGITS,
         gain=0.2)
    case("qwen2_classify", hf.Qwen2ForSequenceClassification(hf.Qwen2Config(**small, num_labels=1)), front, LOGITS, gain=0.2)
    case("qwen3_classify", hf.Qwen3ForSequenceClassification(qwen3), behind, LOGITS, gain=0.2)
    case("qwen3_answer", hf.Qwen3ForQuestionAnswering(qwen3), front, SPANS, **more)


def mixtures():
    small = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                 max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, num_experts_per_tok=2)
    rows, _ = ids(6, [9, 9], 40)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2,
                options=["--require-fusion=experts"])
    case("mixtral", hf.MixtralForCausalLM(hf.MixtralConfig(**small, num_local_experts=4, sliding_window=5)), **more)
    qwen = small | dict(num_experts=5, moe_intermediate_size=24)
    case("qwen2_moe", hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**qwen, shared_expert_intermediate_size=16)), **more)
    windows = qwen | dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=5, max_window_layers=2, mlp_only_layers=[1])
    case("qwen2_moe_windows", hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**windows, shared_expert_intermediate_size=16, norm_topk_prob=True,
         layer_types=["sliding_attention", "full_attention", "sliding_attention"])), **more)
    case("qwen3_moe", hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**qwen, head_dim=16, norm_topk_prob=True, decoder_sparse_step=2)), **more)


def translators():
    rows, mask = ids(8, [7, 5], 40)
    target, _ = ids(9, [6, 6], 40)
    target[:, 0] = 0
    t5 = dict(vocab_size=40, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0)
    more = dict(inputs=dict(input_ids=rows, attention_mask=mask, decoder_input_ids=target), outputs=LOGITS, grows="decoder_input_ids")
    near = dict(relative_attention_num_buckets=8, relative_attention_max_distance=12)  # short texts reach what is far
    case("t5", hf.T5ForConditionalGeneration(hf.T5Config(**t5, **near, feed_forward_proj="relu")), **more)
    case("flan_t5", hf.T5ForConditionalGeneration(hf.T5Config(**t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)), **more)
    case("mt5", hf.MT5ForConditionalGeneration(hf.MT5Config(**t5, **near, feed_forward_proj="gated-gelu")), **more)
    half = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                head_dim=8, max_position_embeddings=64, sliding_window=3, query_pre_attn_scalar=12, attn_logit_softcapping=5.0,
                final_logit_softcapping=4.0, pad_token_id=0, bos_token_id=2, eos_token_id=1)
    first = dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40, sliding_window=2)
    two = target.clone()
    two[:, 0] = 2
    gemma = more | dict(inputs=more["inputs"] | dict(decoder_input_ids=two), options=["--require-fusion=attention"])
    for name, encoder, other in (("t5gemma", half, {}), ("t5gemma_two_sizes", half | first, dict(
            sliding_window=2, attn_logit_softcapping=None, final_logit_softcapping=None,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"]))):
        config = hf.T5GemmaConfig(encoder=hf.T5GemmaModuleConfig(**encoder), decoder=hf.T5GemmaModuleConfig(**half | other), vocab_size=40)
        case(name, hf.T5GemmaForConditionalGeneration(config), **gemma)
    bart = dict(vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=30, pad_token_id=1,
                eos_token_id=2, bos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=None)
    rows, mask = ids(8, [7, 5], 40, pad=1)
    target, _ = ids(9, [6, 6], 40, pad=1)
    target[:, 0] = 2
    more["inputs"] = dict(input_ids=rows, attention_mask=mask, decoder_input_ids=target)
    case("bart", hf.BartForConditionalGeneration(hf.BartConfig(**bart)), **more)
    bart["scale_embedding"] = True
    case("mbart", hf.MBartForConditionalGeneration(hf.MBartConfig(**bart)), **more)
    case("m2m_100", hf.M2M100ForConditionalGeneration(hf.M2M100Config(**bart)), **more)
    case("pegasus", hf.PegasusForConditionalGeneration(hf.PegasusConfig(**bart)), **more)
    case("marian", hf.MarianMTModel(hf.MarianConfig(**bart, activation_function="swish")), **more)
    sound = torch.randn(1, 8, 60, generator=torch.Generator().manual_seed(5))
    whisper = bart | dict(num_mel_bins=8, max_source_positions=30, max_target_positions=40, scale_embedding=False,
                          suppress_tokens=None, begin_suppress_tokens=None)
    del whisper["max_position_embeddings"]
    model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(**whisper))
    case("whisper", model, dict(input_features=sound, decoder_input_ids=target[:1]), LOGITS, sines=True, grows="decoder_input_ids")
    model.generation_config.suppress_tokens = [30, 16, 24]
    case("whisper_suppress", model,
         dict(input_features=sound, decoder_input_ids=target[:1]), LOGITS, sines=True, grows="decoder_input_ids")


def translators_that_classify():
    """Encoder-decoders whose decoder reads the text itself, one token later."""
    rows, mask = ids(8, [9, 6], 40, pad=1)
    for row, n in zip(rows, (9, 6)):
        row[n - 1] = 2
    texts = dict(input_ids=rows, attention_mask=mask)
    bart = dict(vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=30, pad_token_id=1, eos_token_id=2, bos_token_id=0,
                decoder_start_token_id=2, num_labels=3)
    case("bart_classify", hf.BartForSequenceClassification(hf.BartConfig(**bart)), texts, LOGITS)
    case("bart_classify_unmasked", hf.BartForSequenceClassification(hf.BartConfig(**bart)), only(texts, "input_ids"), LOGITS)
    case("bart_answer", hf.BartForQuestionAnswering(hf.BartConfig(**bart | dict(num_labels=2))), texts, SPANS, masked="attention_mask")
    mbart, both = bart | dict(scale_embedding=True), HIDDEN | dict(encoder_last_hidden_state="encoder_last_hidden_state")
    case("bart_body", hf.BartModel(hf.BartConfig(**bart)), texts, both, masked="attention_mask")
    case("mbart_body", hf.MBartModel(hf.MBartConfig(**mbart)), texts, both, masked="attention_mask")
    case("mbart_classify", hf.MBartForSequenceClassification(hf.MBartConfig(**mbart)), texts, LOGITS)
    case("mbart_answer", hf.MBartForQuestionAnswering(hf.MBartConfig(**mbart | dict(num_labels=2))), texts, SPANS, masked="attention_mask")
    t5 = dict(vocab_size=40, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0, eos_token_id=2,
              pad_token_id=1, relative_attention_num_buckets=8, relative_attention_max_distance=12)
    case("t5_classify", hf.T5ForSequenceClassification(hf.T5Config(**t5, num_labels=3)), texts, LOGITS)
    case("t5_answer", hf.T5ForQuestionAnswering(hf.T5Config(**t5)), texts, SPANS, masked="attention_mask")
    case("t5_tokens", hf.T5ForTokenClassification(hf.T5Config(**t5, num_labels=3)), texts, LOGITS, masked="attention_mask")
    gated = t5 | dict(feed_forward_proj="gated-gelu")
    case("mt5_classify", hf.MT5ForSequenceClassification(hf.MT5Config(**gated, num_labels=3)), texts, LOGITS)


def halves():
    """Encoders, bodies and towers of models that have another half or a head, alone."""
    rows, mask = ids(8, [9, 5], 40)
    texts = dict(input_ids=rows, attention_mask=mask)
    t5 = dict(vocab_size=40, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4)
    case("t5_encoder", hf.T5EncoderModel(hf.T5Config(**t5, relative_attention_num_buckets=8, relative_attention_max_distance=10)), texts,
         HIDDEN, masked="attention_mask")
    case("mt5_encoder", hf.MT5EncoderModel(hf.MT5Config(**t5)), only(texts, "input_ids"), HIDDEN)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    images = dict(pixel_values=pixels)
    small = dict(image_size=16, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    case("vit_body", hf.ViTModel(hf.ViTConfig(**small, pooler_output_size=24)), images, POOLED)
    case("vit_unpooled", hf.ViTModel(hf.ViTConfig(**small), add_pooling_layer=False), images, HIDDEN)
    case("deit_body", hf.DeiTModel(hf.DeiTConfig(**small, pooler_act="gelu")), images, POOLED)
    case("deit_taught", hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**small, num_labels=5)), images,
         {k: k for k in ("logits", "cls_logits", "distillation_logits")})
    text = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                max_position_embeddings=16, bos_token_id=37, eos_token_id=39)
    rows = torch.tensor([[37, 4, 9, 30, 39, 1], [37, 8, 20, 33, 7, 39]])
    places = torch.tensor([[0, 1, 2, 3, 4, 4], [0, 1, 1, 2, 3, 4]])
    texts = dict(input_ids=rows, attention_mask=torch.tensor([[1, 1, 1, 1, 1, 0], [1, 0, 1, 1, 1, 1]]), position_ids=places)
    case("clip_text", hf.CLIPTextModel(hf.CLIPTextConfig(**text)), texts, POOLED)
    case("clip_text_embeds", hf.CLIPTextModelWithProjection(hf.CLIPTextConfig(**text | dict(eos_token_id=2), projection_dim=24)),
         only(texts, "input_ids"), HIDDEN | dict(text_embeds="text_embeds"))
    case("clip_vision", hf.CLIPVisionModel(hf.CLIPVisionConfig(**small, hidden_act="gelu")), images, POOLED)
    case("clip_vision_embeds", hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**small, projection_dim=24)), images,
         HIDDEN | dict(image_embeds="image_embeds"))
    clip = hf.CLIPConfig(text_config=text | dict(projection_dim=24), vision_config=small, projection_dim=24)
    both = {k: k for k in ("logits_per_text", "text_embeds", "image_embeds")}
    case("clip_masked", hf.CLIPModel(clip), texts | images, both)
    case("siglip_text", hf.SiglipTextModel(hf.SiglipTextConfig(**text, projection_size=24)), texts, POOLED)
    case("siglip_vision", hf.SiglipVisionModel(hf.SiglipVisionConfig(**small)), images, POOLED)
    case("siglip_vision_unpooled", hf.SiglipVisionModel(hf.SiglipVisionConfig(**small, vision_use_head=False)), images, HIDDEN)
    case("siglip_masked", hf.SiglipModel(hf.SiglipConfig(text_config=text | dict(max_position_embeddings=6, projection_size=32),
         vision_config=small)), texts | images, both)


def settings():
    """Settings of configs that few checkpoints have."""
    rows, mask = ids(6, [9, 9], 40)
    albert = dict(vocab_size=40, hidden_size=24, num_hidden_layers=4, num_attention_heads=4, intermediate_size=40, embedding_size=16,
                  max_position_embeddings=20)
    case("albert_groups", hf.AlbertModel(hf.AlbertConfig(**albert, num_hidden_groups=2, inner_group_num=2)),
         dict(input_ids=rows, attention_mask=mask), POOLED)
    more = dict(inputs=dict(input_ids=rows), outputs=LOGITS, grows="input_ids", gain=0.2)
    ends = dict(bos_token_id=1, eos_token_id=2)
    gpt2 = dict(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=40)
    case("gpt2_inner", hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, **ends, scale_attn_weights=False, activation_function="relu")), **more)
    case("gpt2_by_layer", hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, **ends, scale_attn_by_inverse_layer_idx=True)), **more)
    llama = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, num_key_value_heads=2,
                 max_position_embeddings=64, pad_token_id=0)
    case("llama_gelu", hf.LlamaForCausalLM(hf.LlamaConfig(**llama, **ends, mlp_bias=True, hidden_act="gelu")), **more)
    bloom = dict(vocab_size=40, n_layer=2, hidden_size=32, n_head=4)
    case("bloom_behind_norm", hf.BloomForCausalLM(hf.BloomConfig(**bloom, **ends, apply_residual_connection_post_layernorm=True)), **more)
    opt = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=40, max_position_embeddings=64,
               pad_token_id=0, word_embed_proj_dim=32)
    case("opt_gelu", hf.OPTForCausalLM(hf.OPTConfig(**opt, **ends, activation_function="gelu")), **more)
    smollm3 = llama | ends | dict(num_hidden_layers=5, hidden_act="silu", rms_norm_eps=1e-6, no_rope_layer_interval=2)
    said = smollm3 | dict(model_type="smollm3", architectures=["SmolLM3ForCausalLM"]) # neither the base nor which layers turn
    case("smollm3_interval", hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**smollm3)), **more, files={"config.json": said})


def turned_places():
    """Encoders that turn queries and keys by places that are given; windows count all the same."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=4, num_attention_heads=4, intermediate_size=40)
    every = pairs([11, 7], 40)
    modern = small | dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=6)
    placed = only(every, "input_ids", "attention_mask", "position_ids")
    case("modernbert_placed", hf.ModernBertModel(hf.ModernBertConfig(**modern)), placed, HIDDEN, masked="attention_mask")
    case("modernbert_placed_answer", hf.ModernBertForQuestionAnswering(hf.ModernBertConfig(**modern, num_labels=2)), placed, SPANS,
         masked="attention_mask")
    case("nomic_placed", hf.NomicBertModel(hf.NomicBertConfig(**small, head_dim=6)), every, HIDDEN, masked="attention_mask")


def pictures():
    pixels = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    small = dict(image_size=16, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    case("vit", hf.ViTForImageClassification(hf.ViTConfig(**small, num_labels=5)), dict(pixel_values=pixels), LOGITS)
    case("deit", hf.DeiTForImageClassification(hf.DeiTConfig(**small, num_labels=5)), dict(pixel_values=pixels), LOGITS)
    rows = torch.tensor([[37, 4, 9, 30, 39, 39], [37, 8, 20, 33, 7, 39]])
    text = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                max_position_embeddings=16, bos_token_id=37, eos_token_id=39, projection_dim=24)
    case("clip", hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=small, projection_dim=24)),
         dict(input_ids=rows, pixel_values=pixels), {k: k for k in ("logits_per_text", "text_embeds", "image_embeds")})
    words = torch.tensor([[4, 9, 30, 39, 1, 1], [8, 20, 33, 7, 39, 1]])
    del text["projection_dim"]
    case("siglip", hf.SiglipModel(hf.SiglipConfig(text_config=text | dict(max_position_embeddings=6, projection_size=32),
         vision_config=small)), dict(input_ids=words, pixel_values=pixels),
         {k: k for k in ("logits_per_text", "text_embeds", "image_embeds")})
    dino = {k: v for k, v in small.items() if k != "intermediate_size"}
    case("dinov2", hf.Dinov2Model(hf.Dinov2Config(**dino, use_swiglu_ffn=True)), dict(pixel_values=pixels), POOLED)
    case("dinov2_stretched", hf.Dinov2ForImageClassification(hf.Dinov2Config(**dino | dict(image_size=40), num_labels=5)),
         dict(pixel_values=torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(6))), LOGITS, options=["-D", "size=24"])
    case("dinov2_registers", hf.Dinov2WithRegistersForImageClassification(hf.Dinov2WithRegistersConfig(**dino, num_register_tokens=2,
         num_labels=5)), dict(pixel_values=pixels), LOGITS)


def types_of_shared_files():
    """Types whose classes share a family's file with others, and heads of them that no other case has."""
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, max_position_embeddings=26,
                 pad_token_id=1)
    rows, mask = ids(2, [9, 5], 40, pad=1)
    inputs = dict(input_ids=rows, attention_mask=mask)
    config = hf.XLMRobertaConfig
    case("xlm_roberta_classify", hf.XLMRobertaForSequenceClassification(config(**small, num_labels=3)), inputs, LOGITS)
    case("xlm_roberta_mask", hf.XLMRobertaForMaskedLM(config(**small)), inputs, LOGITS, masked="attention_mask")
    case("camembert_tokens", hf.CamembertForTokenClassification(hf.CamembertConfig(**small, num_labels=5)), inputs, LOGITS,
         masked="attention_mask")
    grouped = small | dict(hidden_size=32, max_position_embeddings=64, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    kinds = ["sliding_attention", "full_attention"]
    rows, mask = ids(6, [9, 6], 40)
    behind, more = dict(input_ids=rows, attention_mask=mask), dict(masked="attention_mask", gain=0.2)
    case("ministral", hf.MinistralForCausalLM(hf.MinistralConfig(**grouped, head_dim=8, sliding_window=5, layer_types=kinds)),
         dict(input_ids=ids(6, [9, 9], 40)[0]), LOGITS, grows="input_ids", gain=0.2)
    case("qwen2_body", hf.Qwen2Model(hf.Qwen2Config(**grouped)), behind, HIDDEN, **more)
    case("qwen2_both_ways", hf.Qwen2Model(hf.Qwen2Config(**grouped, is_causal=False)), behind, HIDDEN, **more)
    case("smollm3_classify", hf.SmolLM3ForSequenceClassification(hf.SmolLM3Config(**grouped, num_labels=3, no_rope_layer_interval=2)), behind,
         LOGITS, gain=0.2)
    case("gemma3_classify", hf.Gemma3TextForSequenceClassification(hf.Gemma3TextConfig(**grouped, head_dim=8, num_labels=3, sliding_window=6,
         layer_types=kinds)), behind, LOGITS, gain=0.2)


for make in (encoders, two_texts, counted_places, debertas, moderns, writers, relatives, scaled_relatives, gpts, alibi_and_sines, sinks,
             latents, layer_norm_relatives, decoders_that_read, mixtures, translators, translators_that_classify, pictures, halves,
             settings, turned_places, types_of_shared_files):
    make()
encoder_cases.make(case, keep_table, keep_by_hand, pairs([9, 6], 40))
picture_cases.make(case)
sound_cases.make(case)
hybrid_cases.make(case)
text_part_cases.make(case)
