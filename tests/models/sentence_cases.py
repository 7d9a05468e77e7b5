"""What sentence transformers add to a body: the cases of make_cases.py with pooling, dense layers, norms."""
import json

import torch
import transformers as hf
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer import modules as st
from sentence_transformers.sparse_encoder.modules import SpladePooling


def save(modules, folder):
    """modules.json and a folder for each module, as SentenceTransformer.save writes them; the folders."""
    places = [folder / f"{i}_{type(m).__name__}" for i, m in enumerate(modules, 1)]
    rows = [dict(idx=0, name="0", path="", type="sentence_transformers.base.modules.transformer.Transformer")]
    for i, (module, place) in enumerate(zip(modules, places), 1):
        place.mkdir()
        module.save(str(place))
        rows.append(dict(idx=i, name=str(i), path=place.name, type=f"{type(module).__module__}.{type(module).__name__}"))
    if modules:
        (folder / "modules.json").write_text(json.dumps(rows))
    return places


def take(modules):
    """What a case compares: the vectors."""
    def vectors(model, inputs):
        prompt = (inputs["attention_mask"] == 2).sum(1)  # of as many tokens in each row
        inputs = dict(inputs, attention_mask=(inputs["attention_mask"] != 0).long())
        body = getattr(model, model.base_model_prefix, model)  # the head of a model that writes is left out
        is_sparse = isinstance(modules[0], SpladePooling)
        states = model(**inputs).logits if is_sparse else body(**inputs).last_hidden_state
        features = dict(inputs, token_embeddings=states, prompt_length=prompt)
        for module in modules:
            features = module(features)
        return features
    return vectors


VECTOR = dict(sentence_embedding="sentence_embedding")


def make(case, small, inputs, inputs1):
    pooled(case, small, inputs, inputs1)
    modular(case, small, inputs)
    sparse(case, small, inputs, inputs1)
    by_token(case, small, inputs)
    more_bodies(case, small, inputs)


def modular(case, small, inputs):
    """Poolings, and what stands behind them, as the package itself saves and loads them."""
    bert = lambda: hf.BertModel(hf.BertConfig(**small))
    for mode in st.Pooling.POOLING_MODES:
        if mode not in ("cls", "mean"):  # of which there are older cases
            case(f"sentence_{mode.removesuffix('_tokens')}", bert(), inputs, VECTOR, modules=[st.Pooling(24, mode)])
    every = st.Pooling(24, st.Pooling.POOLING_MODES)
    case("sentence_every", bert(), inputs, VECTOR, modules=[every, st.LayerNorm(144), st.Normalize()])
    labse = [st.Pooling(24, "cls"), st.Dense(24, 16), st.Normalize()]
    case("sentence_labse", bert(), inputs, VECTOR, modules=labse)
    two = [st.Pooling(24), st.Dense(24, 30, bias=False, activation_function=torch.nn.Identity()), st.Dropout(0.1),
           st.Dense(30, 24, activation_function=torch.nn.ReLU(), use_residual=True), st.Normalize(),
           st.Dense(24, 24, activation_function=torch.nn.GELU(), use_residual=True)]
    case("sentence_dense", bert(), inputs, VECTOR, modules=two)
    t5 = hf.T5Config(vocab_size=40, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4)
    plain = st.Dense(24, 16, bias=False, activation_function=torch.nn.Identity())
    case("sentence_gtr", hf.T5EncoderModel(t5), inputs, VECTOR, modules=[st.Pooling(24), plain, st.Normalize()])
    albert = hf.AlbertConfig(**small, embedding_size=16)
    case("sentence_albert", hf.AlbertModel(albert), inputs, VECTOR, modules=[st.Pooling(24), st.Dense(24, 20), st.Normalize()])
    prompted = inputs | dict(attention_mask=torch.where(torch.arange(9) < 3, inputs["attention_mask"] * 2, inputs["attention_mask"]))
    left_out = st.Pooling(24, st.Pooling.POOLING_MODES, include_prompt=False)
    case("sentence_prompt", bert(), prompted, VECTOR, modules=[left_out])


def more_bodies(case, small, inputs):
    """Vectors of the families of encoder_cases.py."""
    gte = [st.Pooling(24, "cls"), st.Normalize()]
    case("sentence_gte", hf.GteModel(hf.GteConfig(**small)), inputs, VECTOR, modules=gte)
    case("sentence_jina_v3", hf.JinaEmbeddingsV3Model(hf.JinaEmbeddingsV3Config(**small), add_pooling_layer=False), inputs, VECTOR,
         modules=[st.Pooling(24), st.Normalize()])
    euro = hf.EuroBertConfig(**small, pad_token_id=0, bos_token_id=1, eos_token_id=2, mask_token_id=3)
    case("sentence_eurobert", hf.EuroBertModel(euro), inputs, VECTOR, modules=[st.Pooling(24)])


WORDS = {"sentence_bert_config.json": dict(transformer_task="fill-mask", module_output_name="token_embeddings",
                                           modality_config={"text": {"method": "forward", "method_output_name": "logits"}})}


def sparse(case, small, inputs, inputs1):
    """Of the head for masked words one number for each word."""
    more = dict(outputs=VECTOR, files=WORDS)
    tied = lambda kind, config, *how: (kind(config), inputs, dict(more, modules=[SpladePooling(*how)]))
    distil = hf.DistilBertConfig(vocab_size=40, dim=24, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=20)
    modern = {k: v for k, v in small.items() if k != "max_position_embeddings"} | dict(local_attention=6, pad_token_id=0)
    deberta = hf.DebertaV2Config(**small, relative_attention=True, position_buckets=4, norm_rel_ebd="layer_norm", share_att_key=True,
                                 pos_att_type=["p2c", "c2p"])
    of = dict(bert=tied(hf.BertForMaskedLM, hf.BertConfig(**small)), bert_sum=tied(hf.BertForMaskedLM, hf.BertConfig(**small), "sum"),
              distilbert=tied(hf.DistilBertForMaskedLM, distil, "max", "log1p_relu"),
              modernbert=tied(hf.ModernBertForMaskedLM, hf.ModernBertConfig(**modern)), deberta=tied(hf.DebertaV2ForMaskedLM, deberta),
              albert=tied(hf.AlbertForMaskedLM, hf.AlbertConfig(**small, embedding_size=16)),
              eurobert=tied(hf.EuroBertForMaskedLM, hf.EuroBertConfig(**small, pad_token_id=0, bos_token_id=1, eos_token_id=2, mask_token_id=3)),
              gte=tied(hf.GteForMaskedLM, hf.GteConfig(**small)))
    for name, (model, given, options) in of.items():
        case(f"splade_{name}", model, given, **options)
    roberta = small | dict(max_position_embeddings=26, pad_token_id=1)
    for name, model in (("mpnet", hf.MPNetForMaskedLM(hf.MPNetConfig(**roberta))), ("roberta", hf.RobertaForMaskedLM(hf.RobertaConfig(**roberta)))):
        case(f"splade_{name}", model, inputs1, modules=[SpladePooling()], **more)


def by_token(case, small, inputs):
    """ColBERT: one vector for each token."""
    tokens = dict(module_input_name="token_embeddings", module_output_name="token_embeddings")
    dense = st.Dense(24, 16, bias=False, activation_function=torch.nn.Identity(), **tokens)
    more = dict(outputs=dict(token_embeddings="token_embeddings"), masked="attention_mask")
    modern = {k: v for k, v in small.items() if k != "max_position_embeddings"} | dict(local_attention=6, pad_token_id=0)
    case("colbert_bert", hf.BertModel(hf.BertConfig(**small)), inputs, modules=[dense, MultiVectorMask(["."]), st.Normalize(**tokens)], **more)
    case("colbert_modernbert", hf.ModernBertModel(hf.ModernBertConfig(**modern)), inputs, modules=[dense, st.Normalize(**tokens)], **more)
    case("colbert_nomic", hf.NomicBertModel(hf.NomicBertConfig(**small)), inputs, modules=[MultiVectorMask()], **more)


def decoders(case, model, inputs, name):
    """Vectors of bodies that look back alone; of a model with a head for words the head is left out."""
    modules = [st.Pooling(32, "lasttoken"), st.Normalize()] if name != "qwen2" else [st.Pooling(32, "weightedmean")]
    case(f"sentence_{name}", model, inputs, VECTOR, gain=0.2, modules=modules)


def gemma(case, model, inputs):
    """As EmbeddingGemma: a mean, wide, narrow again, without biases or activations, of length 1."""
    plain = lambda a, b: st.Dense(a, b, bias=False, activation_function=torch.nn.Identity())
    case("sentence_gemma3", model, inputs, VECTOR, gain=0.2, modules=[st.Pooling(32), plain(32, 48), plain(48, 32), st.Normalize()])


def rerankers(case, model, inputs, name, *tokens):
    """Scores of a model that writes: the logit of one token, less that of another one."""
    files = {"modules.json": [dict(idx=0, name="0", path="", type="sentence_transformers.base.modules.transformer.Transformer"),
                              dict(idx=1, name="1", path="1_LogitScore", type="sentence_transformers.cross_encoder.modules.logit_score.LogitScore")],
             "1_LogitScore/config.json": dict(true_token_id=tokens[0], false_token_id=(*tokens, None)[1], module_input_name="causal_logits"),
             "sentence_bert_config.json": dict(transformer_task="text-generation", module_output_name="causal_logits",
                                               modality_config={"text": {"method": "forward", "method_output_name": "logits"}}),
             "config_sentence_transformers.json": dict(activation_fn="torch.nn.modules.activation.Sigmoid", model_type="CrossEncoder")}

    def take(model, inputs):
        logits = model(**inputs).logits[:, -1]
        return dict(logits=LogitScore(*tokens)(dict(causal_logits=logits[:, None]))["scores"])
    case(f"rerank_{name}", model, inputs, dict(logits="logits"), gain=0.2, files=files, take=take)


def pooled(case, small, inputs, inputs1):
    """Older files, and every kind of body."""
    def embed(how, normalize):
        def take(model, inputs):
            x, keep = model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
            y = x[:, 0] if how == "cls" else (x * keep).sum(1) / keep.sum(1)
            return dict(y=torch.nn.functional.normalize(y) if normalize else y)
        return take
    for how, normalize in (("mean", True), ("cls", False)):
        kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize
        modules = [dict(idx=i, name=str(i), path="" if i == 0 else f"{i}_{kind}", type=f"sentence_transformers.models.{kind}")
                   for i, kind in enumerate(kinds)]
        pooling = dict(word_embedding_dimension=24, pooling_mode_cls_token=how == "cls",
                       pooling_mode_mean_tokens=how == "mean", pooling_mode_max_tokens=False)
        more = dict(outputs=dict(sentence_embedding="y"), take=embed(how, normalize),
                    files={"modules.json": modules, "1_Pooling/config.json": pooling})
        modern = {k: v for k, v in small.items() if k != "max_position_embeddings"} | dict(local_attention=6, pad_token_id=0)
        if how == "mean":
            case("sentence_modernbert", hf.ModernBertModel(hf.ModernBertConfig(**modern)), inputs, **more)
            case("sentence_nomic", hf.NomicBertModel(hf.NomicBertConfig(**small)), inputs, **more)
            t5 = hf.T5Config(vocab_size=40, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4)
            case("sentence_t5", hf.T5EncoderModel(t5), inputs, **more)
        else:
            case("sentence_deberta", hf.DebertaV2Model(hf.DebertaV2Config(**small, relative_attention=True, position_buckets=4,
                 norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"])), inputs, **more)
        case(f"sentence_{how}", hf.BertModel(hf.BertConfig(**small)), inputs, **more)
        if how == "mean":
            mpnet = small | dict(pad_token_id=1, max_position_embeddings=26)
            case("sentence_mpnet", hf.MPNetModel(hf.MPNetConfig(**mpnet)), inputs1, **more)
        else:
            case("sentence_distilbert", hf.DistilBertModel(hf.DistilBertConfig(vocab_size=40, dim=24, n_layers=2, n_heads=4,
                 hidden_dim=40, max_position_embeddings=20)), inputs, **more)


