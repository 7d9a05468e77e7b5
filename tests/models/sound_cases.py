"""Cases of make_cases.py whose input is a sound, as its samples."""
import torch
import transformers as hf

HIDDEN, LOGITS = dict(last_hidden_state="last_hidden_state"), dict(logits="logits")


def sound(n, real=None):
    """Two sounds; of the second the samples behind the first `real` are padding."""
    samples = torch.randn(2, n, generator=torch.Generator().manual_seed(5))
    mask = torch.ones(2, n, dtype=torch.long)
    mask[1, real:] = 0
    return dict(input_values=samples * mask) | (dict(attention_mask=mask) if real else {})


def wav2vec2s(case):
    small = dict(vocab_size=20, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, conv_dim=[8, 12, 8],
                 conv_kernel=[10, 3, 2], conv_stride=[5, 2, 2], num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
                 classifier_proj_size=16, num_labels=3)
    large = small | dict(feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True, num_conv_pos_embeddings=5)
    config, fused = hf.Wav2Vec2Config, ["--require-fusion=attention"]
    ctc = hf.Wav2Vec2ForCTC
    case("wav2vec2", hf.Wav2Vec2Model(config(**small)), sound(201), HIDDEN, options=fused)
    case("wav2vec2_stable", hf.Wav2Vec2Model(config(**large, mask_time_prob=0.0)), sound(200, 130), HIDDEN, options=fused)
    case("wav2vec2_ctc", ctc(config(**small)), sound(200), LOGITS, options=fused)
    case("wav2vec2_ctc_stable", ctc(config(**large, hidden_act="relu", feat_extract_activation="gelu_new")), sound(204, 120), LOGITS)
    case("wav2vec2_ctc_language", ctc(config(**large, adapter_attn_dim=6)), sound(200, 150), LOGITS)
    case("wav2vec2_ctc_shorter", ctc(config(**large, add_adapter=True, output_hidden_size=16, num_adapter_layers=2)), sound(300), LOGITS)
    case("wav2vec2_classify", hf.Wav2Vec2ForSequenceClassification(config(**small)), sound(200, 150), LOGITS)
    case("wav2vec2_classify_mixed", hf.Wav2Vec2ForSequenceClassification(config(**large, use_weighted_layer_sum=True)), sound(200), LOGITS)
    case("wav2vec2_frames", hf.Wav2Vec2ForAudioFrameClassification(config(**small, use_weighted_layer_sum=True)), sound(200, 150), LOGITS)
    speaker = dict(tdnn_dim=[12, 8, 20], tdnn_kernel=[3, 2, 1], tdnn_dilation=[1, 2, 1], xvector_output_dim=6)
    both, kind = LOGITS | dict(embeddings="embeddings"), hf.Wav2Vec2ForXVector
    case("wav2vec2_speaker", kind(config(**small | speaker)), sound(300), both, options=fused)
    case("wav2vec2_speaker_mixed", kind(config(**large | speaker, use_weighted_layer_sum=True)), sound(300, 250), both, options=fused)
    # What facebook/wav2vec2-base-960h says, smaller, with the names that its tensors had.
    first = {k: v for k, v in small.items() if k not in ("classifier_proj_size", "num_labels")} | dict(
        model_type="wav2vec2", architectures=["Wav2Vec2ForCTC"], activation_dropout=0.1, apply_spec_augment=True, attention_dropout=0.1,
        bos_token_id=1, codevector_dim=16, contrastive_logits_temperature=0.1, conv_bias=False, ctc_loss_reduction="sum",
        ctc_zero_infinity=False, diversity_loss_weight=0.1, do_stable_layer_norm=False, eos_token_id=2, feat_extract_activation="gelu",
        feat_extract_dropout=0.0, feat_extract_norm="group", feat_proj_dropout=0.1, feat_quantizer_dropout=0.0, final_dropout=0.1,
        gradient_checkpointing=False, hidden_act="gelu", hidden_dropout=0.1, hidden_dropout_prob=0.1, initializer_range=0.02,
        layer_norm_eps=1e-05, layerdrop=0.1, mask_feature_length=10, mask_feature_prob=0.0, mask_time_length=10, mask_time_prob=0.05,
        num_codevector_groups=2, num_codevectors_per_group=8, num_feat_extract_layers=3, num_negatives=10, pad_token_id=0,
        proj_codevector_dim=16, transformers_version="4.7.0.dev0")
    older = lambda shapes: {n.replace("parametrizations.weight.original0", "weight_g").replace("parametrizations.weight.original1", "weight_v"): s
                            for n, s in shapes.items()}
    case("wav2vec2_ctc_first", ctc(config(**{k: v for k, v in first.items() if k != "model_type"})), sound(200), LOGITS,
         files={"config.json": first}, weights=older)


def moonshines(case):
    target = torch.tensor([[1, 5, 9, 17, 4], [1, 30, 4, 8, 22]])
    more = dict(outputs=LOGITS, grows="decoder_input_ids", gain=0.3, options=["--require-fusion=attention"])
    small = dict(vocab_size=40, hidden_size=24, intermediate_size=32, encoder_num_hidden_layers=2, decoder_num_hidden_layers=3,
                 encoder_num_attention_heads=2, decoder_num_attention_heads=2, max_position_embeddings=64)
    kind, config = hf.MoonshineForConditionalGeneration, hf.MoonshineConfig
    whole = lambda n, real: sound(n, real) | dict(decoder_input_ids=target)
    case("moonshine", kind(config(**small)), whole(1700, 1300), **more)
    case("moonshine_untied", kind(config(**small, tie_word_embeddings=False, attention_bias=True, encoder_hidden_act="relu",
         pad_head_dim_to_multiple_of=8, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0))),
         whole(1699, 1699), **more)
    # What UsefulSensors/moonshine-tiny says, smaller.
    first = small | dict(model_type="moonshine", architectures=["MoonshineForConditionalGeneration"], attention_bias=False,
                         attention_dropout=0.0, bos_token_id=1, decoder_hidden_act="silu", decoder_num_key_value_heads=2,
                         decoder_start_token_id=1, encoder_hidden_act="gelu", encoder_num_key_value_heads=2, eos_token_id=2,
                         initializer_range=0.02, is_encoder_decoder=True, partial_rotary_factor=0.9, rope_scaling=None, rope_theta=10000.0,
                         torch_dtype="float32", transformers_version="4.48.0.dev0", use_cache=True)
    case("moonshine_first", kind(config(**{k: v for k, v in first.items() if k not in ("model_type", "architectures")})), whole(1700, 1500),
         **more, files={"config.json": first})
    half = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, sample_rate=1600,
                sliding_windows=[[3, 1], [2, 2]])
    small = dict(vocab_size=40, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                 max_position_embeddings=64, decoder_start_token_id=1, head_dim=10, encoder_config=half)
    kind, config = hf.MoonshineStreamingForConditionalGeneration, hf.MoonshineStreamingConfig
    case("moonshine_streaming", kind(config(**small)), whole(240, 170), **more)
    alike = small | dict(encoder_config=half | dict(hidden_size=24, num_key_value_heads=4, attention_bias=True, hidden_act="relu",
                                                    sliding_windows=[[4, 4], [16, 0]]), attention_bias=True, tie_word_embeddings=True)
    case("moonshine_streaming_alike", kind(config(**alike)), whole(240, 240), **more)


def make(case):
    wav2vec2s(case)
    moonshines(case)
