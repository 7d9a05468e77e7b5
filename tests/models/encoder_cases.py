"""Encoders whose bodies or heads are those of one model type alone: cases of make_cases.py."""
import json
import pathlib
import tempfile

import torch
import transformers as hf
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import checkpoint

HIDDEN, LOGITS = dict(last_hidden_state="last_hidden_state"), dict(logits="logits")
POOLED = HIDDEN | dict(pooler_output="pooler_output")
SPANS = dict(start_logits="start_logits", end_logits="end_logits")
SMALL = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, max_position_embeddings=20)


def only(inputs, *names):
    return {name: inputs[name] for name in names}


def two(every):
    return only(every, "input_ids", "attention_mask", "token_type_ids")


def rotary_berts(case, every):
    gte, jina = hf.GteConfig(**SMALL, type_vocab_size=2, num_labels=3), dict(SMALL, type_vocab_size=2)
    case("gte", hf.GteModel(gte), every, HIDDEN, masked="attention_mask")
    case("gte_untyped", hf.GteModel(hf.GteConfig(**SMALL, type_vocab_size=0, hidden_act="silu"), add_pooling_layer=True),
         only(every, "input_ids"), HIDDEN)
    case("gte_mask", hf.GteForMaskedLM(gte), two(every), LOGITS, masked="attention_mask")
    case("gte_classify", hf.GteForSequenceClassification(gte), two(every), LOGITS)
    case("gte_tokens", hf.GteForTokenClassification(gte), every, LOGITS, masked="attention_mask")
    case("jina_v3", hf.JinaEmbeddingsV3Model(hf.JinaEmbeddingsV3Config(**jina)), every, POOLED)
    case("jina_v3_alone", hf.JinaEmbeddingsV3Model(hf.JinaEmbeddingsV3Config(**jina, hidden_act="relu"), add_pooling_layer=False),
         only(every, "input_ids"), HIDDEN)
    case("jina_v3_mask", hf.JinaEmbeddingsV3ForMaskedLM(hf.JinaEmbeddingsV3Config(**jina)), two(every), LOGITS, masked="attention_mask")
    case("jina_v3_mask_untied", hf.JinaEmbeddingsV3ForMaskedLM(hf.JinaEmbeddingsV3Config(**jina, tie_word_embeddings=False)), two(every),
         LOGITS, masked="attention_mask")
    case("jina_v3_classify", hf.JinaEmbeddingsV3ForSequenceClassification(hf.JinaEmbeddingsV3Config(**jina, num_labels=3)), two(every), LOGITS)
    case("jina_v3_tokens", hf.JinaEmbeddingsV3ForTokenClassification(hf.JinaEmbeddingsV3Config(**jina, num_labels=3)), every, LOGITS,
         masked="attention_mask")
    case("jina_v3_answer", hf.JinaEmbeddingsV3ForQuestionAnswering(hf.JinaEmbeddingsV3Config(**jina)), two(every), SPANS,
         masked="attention_mask")


def euroberts(case, every):
    euro = dict(SMALL, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, mask_token_id=3)
    placed, masked = only(every, "input_ids", "attention_mask", "position_ids"), only(every, "input_ids", "attention_mask")
    case("eurobert", hf.EuroBertModel(hf.EuroBertConfig(**euro)), placed, HIDDEN, masked="attention_mask")
    case("eurobert_mask", hf.EuroBertForMaskedLM(hf.EuroBertConfig(**euro, attention_bias=True, mlp_bias=True, head_dim=8)), masked, LOGITS,
         masked="attention_mask")
    case("eurobert_mask_tied", hf.EuroBertForMaskedLM(hf.EuroBertConfig(**euro, tie_word_embeddings=True)), only(every, "input_ids"), LOGITS)
    for how in ("late", "mean", "bos"):
        case(f"eurobert_classify_{how}", hf.EuroBertForSequenceClassification(hf.EuroBertConfig(**euro, classifier_pooling=how, num_labels=3)),
             masked, LOGITS)
    case("eurobert_tokens", hf.EuroBertForTokenClassification(hf.EuroBertConfig(**euro, num_labels=3)), masked, LOGITS,
         masked="attention_mask")


def debertas(case, every):
    small = dict(SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=2)
    config = hf.DebertaConfig
    case("deberta", hf.DebertaModel(config(**small)), every, HIDDEN, masked="attention_mask")
    case("deberta_near", hf.DebertaModel(config(**small | dict(pos_att_type=["c2p"], max_relative_positions=4, position_biased_input=False,
         type_vocab_size=0))), only(every, "input_ids", "attention_mask"), HIDDEN, masked="attention_mask")
    case("deberta_absolute", hf.DebertaModel(config(**SMALL, hidden_act="relu")), only(every, "input_ids"), HIDDEN)
    case("deberta_mask", hf.DebertaForMaskedLM(config(**small)), two(every), LOGITS, masked="attention_mask")
    case("deberta_mask_newer", hf.DebertaForMaskedLM(config(**small, legacy=False)), two(every), LOGITS, masked="attention_mask")
    case("deberta_classify", hf.DebertaForSequenceClassification(config(**small, num_labels=3)), two(every), LOGITS)
    case("deberta_tokens", hf.DebertaForTokenClassification(config(**small, num_labels=3)), two(every), LOGITS, masked="attention_mask")
    case("deberta_answer", hf.DebertaForQuestionAnswering(config(**small | dict(pos_att_type="p2c"))), two(every), SPANS, masked="attention_mask")


def mobile_berts(case, every):
    small = dict(SMALL, embedding_size=10, intra_bottleneck_size=16, num_feedforward_networks=3)
    config = hf.MobileBertConfig
    case("mobilebert", hf.MobileBertModel(config(**small)), every, POOLED)
    case("mobilebert_normed", hf.MobileBertModel(config(**small | dict(normalization_type="layer_norm", num_feedforward_networks=1,
         hidden_act="gelu"))), only(every, "input_ids"), POOLED)
    case("mobilebert_mask", hf.MobileBertForMaskedLM(config(**small)), two(every), LOGITS)
    case("mobilebert_classify", hf.MobileBertForSequenceClassification(config(**small, num_labels=3)), two(every), LOGITS)
    case("mobilebert_classify_plain", hf.MobileBertForSequenceClassification(config(**small, classifier_activation=False)), two(every), LOGITS)
    case("mobilebert_tokens", hf.MobileBertForTokenClassification(config(**small, num_labels=3)), two(every), LOGITS)
    case("mobilebert_answer", hf.MobileBertForQuestionAnswering(config(**small)), two(every), SPANS)
    case("mobilebert_next", hf.MobileBertForNextSentencePrediction(config(**small)), two(every), LOGITS)
    case("mobilebert_pretrain", hf.MobileBertForPreTraining(config(**small)), two(every),
         dict(prediction_logits="prediction_logits", seq_relationship_logits="seq_relationship_logits"))


def ernies(case, every):
    config = hf.ErnieConfig
    case("ernie", hf.ErnieModel(config(**SMALL)), every, POOLED)
    case("ernie_tasks", hf.ErnieModel(config(**SMALL, use_task_id=True), add_pooling_layer=False), every, HIDDEN)
    case("ernie_mask", hf.ErnieForMaskedLM(config(**SMALL, use_task_id=True)), two(every), LOGITS)
    case("ernie_classify", hf.ErnieForSequenceClassification(config(**SMALL, num_labels=3)), two(every), LOGITS)
    case("ernie_tokens", hf.ErnieForTokenClassification(config(**SMALL, num_labels=3)), two(every), LOGITS)
    case("ernie_answer", hf.ErnieForQuestionAnswering(config(**SMALL)), two(every), SPANS)
    case("ernie_next", hf.ErnieForNextSentencePrediction(config(**SMALL)), two(every), LOGITS)
    case("ernie_pretrain", hf.ErnieForPreTraining(config(**SMALL)), two(every),
         dict(prediction_logits="prediction_logits", seq_relationship_logits="seq_relationship_logits"))


def large_robertas(case, every):
    """Places of its own begin behind that of padding."""
    small, config = dict(SMALL, max_position_embeddings=26, pad_token_id=1, type_vocab_size=2), hf.XLMRobertaXLConfig
    every = dict(every, input_ids=torch.where(every["attention_mask"] == 0, 1, every["input_ids"]), position_ids=every["position_ids"] + 2)
    case("xlm_roberta_xl", hf.XLMRobertaXLModel(config(**small)), only(every, "input_ids", "attention_mask"), POOLED)
    case("xlm_roberta_xl_placed", hf.XLMRobertaXLModel(config(**small, hidden_act="relu"), add_pooling_layer=False), every, HIDDEN)
    case("xlm_roberta_xl_mask", hf.XLMRobertaXLForMaskedLM(config(**small)), two(every), LOGITS)
    case("xlm_roberta_xl_mask_untied", hf.XLMRobertaXLForMaskedLM(config(**small, tie_word_embeddings=False)), two(every), LOGITS)
    case("xlm_roberta_xl_classify", hf.XLMRobertaXLForSequenceClassification(config(**small, num_labels=3)), two(every), LOGITS)
    case("xlm_roberta_xl_tokens", hf.XLMRobertaXLForTokenClassification(config(**small, num_labels=3)), two(every), LOGITS)
    case("xlm_roberta_xl_answer", hf.XLMRobertaXLForQuestionAnswering(config(**small)), two(every), SPANS)


def umt5s(case, every):
    t5 = dict(vocab_size=40, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
              relative_attention_max_distance=10)
    texts = only(every, "input_ids", "attention_mask")
    target = torch.tensor([[0, 5, 9, 17], [0, 30, 4, 8]])
    for name, more in (("umt5", {}), ("umt5_relu", dict(feed_forward_proj="relu", tie_word_embeddings=False))):
        case(name, hf.UMT5ForConditionalGeneration(hf.UMT5Config(**t5 | more)), texts | dict(decoder_input_ids=target), LOGITS,
             grows="decoder_input_ids")
    case("umt5_encoder", hf.UMT5EncoderModel(hf.UMT5Config(**t5)), texts, HIDDEN, masked="attention_mask")
    ends = dict(input_ids=torch.where(torch.arange(texts["input_ids"].shape[1]) == 2, 1, texts["input_ids"]),
                attention_mask=texts["attention_mask"])
    case("umt5_classify", hf.UMT5ForSequenceClassification(hf.UMT5Config(**t5, num_labels=3)), ends, LOGITS)
    case("umt5_answer", hf.UMT5ForQuestionAnswering(hf.UMT5Config(**t5)), texts, SPANS, masked="attention_mask")
    case("umt5_tokens", hf.UMT5ForTokenClassification(hf.UMT5Config(**t5, num_labels=3)), texts, LOGITS, masked="attention_mask")


def t5gemmas(case, every):
    """The encoder alone, and heads that read its states or those of a decoder."""
    texts = only(every, "input_ids", "attention_mask")
    half = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                head_dim=8, max_position_embeddings=64, sliding_window=3, query_pre_attn_scalar=12, attn_logit_softcapping=5.0)
    first = half | dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40, sliding_window=2)
    config = lambda encoder, **more: hf.T5GemmaConfig(encoder=hf.T5GemmaModuleConfig(**encoder), decoder=hf.T5GemmaModuleConfig(**half),
                                                      vocab_size=40, **more)
    alone = dict(masked="attention_mask", options=["--require-fusion=attention"])
    classify, tokens = hf.T5GemmaForSequenceClassification, hf.T5GemmaForTokenClassification
    case("t5gemma_encoder", hf.T5GemmaEncoderModel(config(first, is_encoder_decoder=False)), texts, HIDDEN, **alone)
    case("t5gemma_encoder_unmasked", hf.T5GemmaEncoderModel(config(half, is_encoder_decoder=False)), only(texts, "input_ids"), HIDDEN, masked="input_ids")
    case("t5gemma_classify", classify(config(first, num_labels=3)), texts, LOGITS)
    case("t5gemma_classify_alone", classify(config(first, is_encoder_decoder=False, num_labels=3)), texts, LOGITS)
    case("t5gemma_tokens", tokens(config(first, num_labels=3)), texts, LOGITS, **alone)
    case("t5gemma_tokens_alone", tokens(config(half, is_encoder_decoder=False, num_labels=3)), texts, LOGITS, **alone)
    case("sentence_t5gemma", hf.T5GemmaEncoderModel(config(first, is_encoder_decoder=False)), texts,
         dict(sentence_embedding="sentence_embedding"), modules=[st.Pooling(24, "mean"), st.Normalize()])


def nomics(case, every):
    config = hf.NomicBertConfig(**SMALL, head_dim=6, num_labels=3)
    case("nomic_mask", hf.NomicBertForMaskedLM(config), two(every), LOGITS, masked="attention_mask")
    case("nomic_mask_untied", hf.NomicBertForMaskedLM(hf.NomicBertConfig(**SMALL, tie_word_embeddings=False)), two(every), LOGITS,
         masked="attention_mask")
    case("nomic_classify", hf.NomicBertForSequenceClassification(config), two(every), LOGITS)
    case("nomic_tokens", hf.NomicBertForTokenClassification(config), every, LOGITS, masked="attention_mask")


def static(keep, every):
    """Tables of vectors, which have no config.json, and those of model2vec, as sentence-transformers loads them."""
    words = json.loads(Tokenizer(WordLevel({f"w{i}": i for i in range(40)}, "w0")).to_str())
    of = lambda path, *kinds: [dict(idx=i, name=str(i), path=path if i == 0 else f"{i}_{kind}", type=f"sentence_transformers.models.{kind}")
                               for i, kind in enumerate(kinds)]
    model2vec = dict(model_type="model2vec", architectures=["StaticModel"], tokenizer_name="none", apply_pca=16, apply_zipf=True, hidden_dim=16,
                     seq_length=1000000, normalize=True)
    plain = {"tokenizer.json": words, "modules.json": of("", "StaticEmbedding")}
    for name, files, table in (("static", plain, "embedding.weight"),
                               ("model2vec", {"tokenizer.json": words, "config.json": model2vec, "modules.json": of(".", "StaticEmbedding", "Normalize")},
                                "embeddings")):
        found = dict(files=files, weights={table: [40, 16]}, gain=0.25, inputs={k: v.tolist() for k, v in every.items()}, masked=None)
        for seed, run in enumerate((found, found.setdefault("second", {}))):
            rows, mask = (torch.from_numpy(checkpoint.turned(v.numpy())) if seed else v for v in every.values())
            with tempfile.TemporaryDirectory() as folder:
                checkpoint.write(found, pathlib.Path(folder), seed)
                features = st.StaticEmbedding.load(folder)(dict(input_ids=rows[mask != 0], offsets=mask.sum(1).cumsum(0) - mask.sum(1)))
            vectors = st.Normalize()(features)["sentence_embedding"] if "config.json" in files else features["sentence_embedding"]
            run["outputs"] = dict(sentence_embedding=json.loads(json.dumps(vectors.tolist()), parse_float=lambda text: float(f"{float(text):.7g}")))
        keep(name, found)


def nomic_experts(keep, every):
    """Of Nomic's second BERT transformers has no class: what its settings mean, written out."""
    d, heads, ffn, depth, experts, eps = 24, 4, 40, 4, 5, 1e-5
    # What nomic-ai/nomic-embed-text-v2-moe says, smaller.
    config = dict(activation_function="gelu", add_pooling_layer=False, architectures=["NomicBertModel"], attn_pdrop=0.0, bos_token_id=None,
                  causal=False, dense_seq_output=True, embd_pdrop=0.1, eos_token_id=None, expert_choice_router=False, ffn_div=1,
                  fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=eps, max_trained_positions=2048,
                  mlp_fc1_bias=True, mlp_fc2_bias=True, model_type="nomic_bert", moe_every_n_layers=2, moe_impl="megablocks",
                  moe_normalize_expert_weights=False, moe_resid_pdrop=0.0, moe_top_k=2, n_embd=d, n_head=heads, n_inner=ffn, n_layer=depth,
                  n_positions=2048, num_experts=experts, num_shared_experts=0, pad_token_id=1, pad_vocab_size_multiple=64,
                  parallel_block=False, parallel_block_tied_norm=False, prenorm=False, qkv_proj_bias=True, reorder_and_upcast_attn=False,
                  resid_pdrop=0.0, rotary_emb_base=10000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
                  rotary_scaling_factor=None, router_aux_loss_coef=0.1, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True,
                  summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index",
                  summary_use_proj=True, torch_dtype="float32", transformers_version="4.44.2", type_vocab_size=1, use_cache=True,
                  use_flash_attn=True, use_rms_norm=None, use_xentropy=True, vocab_size=40)
    shapes = {"embeddings.word_embeddings.weight": [40, d], "embeddings.token_type_embeddings.weight": [1, d]}
    shapes |= {f"emb_ln.{part}": [d] for part in ("weight", "bias")}
    for i in range(depth):
        of = {"attn.Wqkv.weight": [3 * d, d], "attn.Wqkv.bias": [3 * d], "attn.out_proj.weight": [d, d], "attn.out_proj.bias": [d]}
        of |= {f"norm{n}.{part}": [d] for n in (1, 2) for part in ("weight", "bias")}
        of |= ({"mlp.router.layer.weight": [experts, d], "mlp.experts.mlp.w1": [experts * ffn, d], "mlp.experts.mlp.w2": [experts * ffn, d],
                "mlp.experts.bias": [d]} if i % 2 else
               {"mlp.fc1.weight": [ffn, d], "mlp.fc1.bias": [ffn], "mlp.fc2.weight": [d, ffn], "mlp.fc2.bias": [d]})
        shapes |= {f"encoder.layers.{i}.{name}": shape for name, shape in of.items()}
    F = torch.nn.functional

    def hidden(w, rows, mask):
        norm = lambda x, name: F.layer_norm(x, (d,), w[name + ".weight"], w[name + ".bias"], eps)
        size = d // heads
        angle = torch.arange(rows.shape[1])[:, None] / 10000.0 ** (torch.arange(0, size, 2) / size)
        turn = torch.polar(torch.ones_like(angle), angle)  # the first half of a head with the second

        def turned(x):
            y = torch.complex(x[..., :size // 2], x[..., size // 2:]) * turn
            return torch.cat([y.real, y.imag], -1)
        x = norm(w["embeddings.word_embeddings.weight"][rows] + w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
        for i in range(depth):
            of = {name.removeprefix(f"encoder.layers.{i}."): value for name, value in w.items()}
            q, k, v = (y.unflatten(-1, (heads, size)).transpose(1, 2)
                       for y in F.linear(x, of["attn.Wqkv.weight"], of["attn.Wqkv.bias"]).chunk(3, -1))
            scores = turned(q) @ turned(k).mT / size**0.5 + torch.where(mask == 0, -torch.inf, 0.0)[:, None, None]
            y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = norm(x + F.linear(y, of["attn.out_proj.weight"], of["attn.out_proj.bias"]), f"encoder.layers.{i}.norm1")
            if i % 2 == 0:
                y = F.linear(F.gelu(F.linear(x, of["mlp.fc1.weight"], of["mlp.fc1.bias"])), of["mlp.fc2.weight"], of["mlp.fc2.bias"])
            else:
                share, chosen = (x @ of["mlp.router.layer.weight"].T).softmax(-1).topk(2)
                up, down = (of[f"mlp.experts.mlp.{name}"].unflatten(0, (experts, ffn)) for name in ("w1", "w2"))
                all_of = torch.einsum("btef,efd->bted", F.gelu(torch.einsum("btd,efd->btef", x, up)), down)
                picked = all_of.gather(2, chosen[..., None].expand(-1, -1, -1, d))
                y = (share[..., None] * picked).sum(2) + of["mlp.experts.bias"]
            x = norm(x + y, f"encoder.layers.{i}.norm2")
        return x
    pool = dict(word_embedding_dimension=d, pooling_mode_mean_tokens=True)
    module = lambda i, path, kind: dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
    vectors = {"modules.json": [module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"), module(2, "2_Normalize", "Normalize")],
               "1_Pooling/config.json": pool, "sentence_bert_config.json": dict(max_seq_length=512, do_lower_case=False)}
    for name, files in (("nomic_experts", {}), ("sentence_nomic_experts", vectors)):
        found = dict(files={"config.json": config} | files, weights=shapes, gain=0.25, inputs={k: v.tolist() for k, v in every.items()},
                     masked=None if files else "attention_mask", options=["--require-fusion=experts", "--require-fusion=attention"])
        for seed, run in enumerate((found, found.setdefault("second", {}))):
            rows, mask = (torch.from_numpy(checkpoint.turned(v.numpy())) if seed else v for v in every.values())
            x = hidden({n: torch.from_numpy(checkpoint.weight(n, s, 0.25, seed)) for n, s in shapes.items()}, rows, mask)
            mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            made = dict(sentence_embedding=F.normalize(mean, dim=-1)) if files else dict(last_hidden_state=x)
            run["outputs"] = {k: json.loads(json.dumps(v.tolist()), parse_float=lambda text: float(f"{float(text):.7g}")) for k, v in made.items()}
        keep(name, found)


def make(case, keep, keep_by_hand, every):
    """`every`: two rows of ids, masks, kinds and places, padded behind. case() computes a case; keep() and keep_by_hand()
    write one."""
    with torch.no_grad():
        static(keep, only(every, "input_ids", "attention_mask"))
        nomic_experts(keep_by_hand, only(every, "input_ids", "attention_mask"))
    rotary_berts(case, every)
    euroberts(case, every)
    debertas(case, every)
    mobile_berts(case, every)
    ernies(case, every)
    large_robertas(case, every)
    umt5s(case, every)
    t5gemmas(case, every)
    nomics(case, every)
