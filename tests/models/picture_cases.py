"""Cases of make_cases.py whose input is a picture."""
import torch
import transformers as hf

POOLED = {"last_hidden_state": "last_hidden_state", "pooler_output": "pooler_output"}
LOGITS = {"logits": "logits"}
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)


def picture(*shape):
    return dict(pixel_values=torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(5)))


def make(case):
    small = SMALL | dict(image_size=16, patch_size=8)
    case("dinov3", hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**small, num_register_tokens=2)), picture(16, 16), POOLED)
    case("dinov3_gated", hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**small, use_gated_mlp=True, hidden_act="silu", key_bias=True,
         query_bias=False, mlp_bias=False, rope_theta=50.0)), picture(16, 24), POOLED, options=["-D", "width=24"])
    beit = hf.BeitConfig
    case("beit", hf.BeitModel(beit(**small, use_relative_position_bias=True, use_absolute_position_embeddings=True, use_mask_token=True)),
         picture(16, 16), POOLED)
    case("beit_shared", hf.BeitForImageClassification(beit(**small, use_shared_relative_position_bias=True, use_mean_pooling=False,
         layer_scale_init_value=0.0, hidden_act="relu", num_labels=5)), picture(16, 16), LOGITS)
    case("beit_first", hf.BeitModel(beit(**small, use_mean_pooling=False)), picture(16, 16), POOLED)
    case("data2vec_vision", hf.Data2VecVisionForImageClassification(hf.Data2VecVisionConfig(**small, use_relative_position_bias=True,
         num_labels=5)), picture(16, 16), LOGITS)
    seen = dict(image_size=16, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    clip = hf.CLIPConfig(text_config=dict(hidden_size=32), vision_config=seen | dict(hidden_act="gelu"), num_labels=5)
    case("clip_classify", hf.CLIPForImageClassification(clip), picture(16, 16), LOGITS)
    siglip = hf.SiglipConfig(text_config=dict(hidden_size=32), vision_config=seen, num_labels=5)
    case("siglip_classify", hf.SiglipForImageClassification(siglip), picture(16, 16), LOGITS)
    windows = dict(patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4)
    case("swin", hf.SwinModel(hf.SwinConfig(**windows, image_size=24, use_absolute_embeddings=True, mlp_ratio=1.5)), picture(24, 24), POOLED)
    case("swin_classify", hf.SwinForImageClassification(hf.SwinConfig(**windows | dict(depths=[3, 1], qkv_bias=False), image_size=16,
         num_labels=5)), picture(16, 16), LOGITS)
