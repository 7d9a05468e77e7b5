"""Encoders whose bodies or heads are those of one model type alone: cases of make_cases.py."""
import torch
import transformers as hf

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


def make(case, every):
    """`every`: two rows of ids, masks, kinds and places, padded behind."""
    rotary_berts(case, every)
    euroberts(case, every)
