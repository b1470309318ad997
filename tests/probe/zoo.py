"""Small random models of `transformers`, built from their configurations; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def gpt2(attention: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": 32, "n_embd": 22, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    return _built(GPT2LMHeadModel, GPT2Config, attention, **sizes)


def llama(attention: str) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 40, "intermediate_size": 23, "num_hidden_layers": 2, "max_position_embeddings": 32}
    return _built(LlamaForCausalLM, LlamaConfig, attention, num_attention_heads=4, num_key_value_heads=2, **sizes)


def bert(attention: str) -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 22, "intermediate_size": 23, "num_hidden_layers": 2, "max_position_embeddings": 32}
    return _built(BertModel, BertConfig, attention, num_attention_heads=2, **sizes)


def t5(attention: str) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 22, "d_kv": 11, "d_ff": 23, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    return _built(T5ForConditionalGeneration, T5Config, attention, decoder_start_token_id=0, **sizes)


MODELS: dict[str, Callable[[str], nn.Module]] = {"gpt2": gpt2, "llama": llama, "bert": bert, "t5": t5}


def _built(model: Any, config: Any, attention: str, **sizes: int) -> nn.Module:
    configured = config(vocab_size=67, **sizes)
    configured._attn_implementation = attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built: nn.Module = model(configured).eval()
    return built
