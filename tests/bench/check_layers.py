"""Times `attn_guard.check` on single layers and small whole models, after imports; prints one line each.

Run: ``python tests/bench/check_layers.py``. Each figure is the median of several checks of the same module, in one
process on one
thread; ``forwards`` is that time over the time of one forward pass of the module on the inputs that the check uses.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from attn_guard import check, reference
from attn_guard.contract import Contract
from attn_guard.probe.xray import find_call

REPEATS = 7


def layers() -> Iterator[tuple[str, nn.Module]]:
    yield "reference.MultiHeadAttention(64, 8)", reference.MultiHeadAttention(64, 8)
    for batch_first in (True, False):
        yield (
            f"nn.MultiheadAttention(64, 8, batch_first={batch_first})",
            nn.MultiheadAttention(64, 8, batch_first=batch_first),
        )
    yield "nn.TransformerEncoderLayer(64, 8)", nn.TransformerEncoderLayer(64, 8, 128, batch_first=True)
    yield "nn.TransformerDecoderLayer(64, 8)", nn.TransformerDecoderLayer(64, 8, 128, batch_first=True)


def models() -> Iterator[tuple[str, nn.Module]]:
    try:
        import transformers
    except ImportError:
        return
    logging.disable(logging.WARNING)
    common: dict[str, Any] = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    for implementation in ("eager", "sdpa"):
        shared = {**common, "attn_implementation": implementation}
        gpt2 = transformers.GPT2Config(n_embd=64, n_head=4, n_layer=2, n_positions=32, **shared)
        yield f"GPT-2, 2 layers, {implementation}", transformers.GPT2LMHeadModel(gpt2)
        small: dict[str, Any] = {
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "intermediate_size": 128,
        }
        llama = transformers.LlamaConfig(num_key_value_heads=2, **small, **shared)
        yield f"Llama, 2 layers, {implementation}", transformers.LlamaForCausalLM(llama)
        yield (
            f"BERT, 2 layers, {implementation}",
            transformers.BertModel(transformers.BertConfig(**small, **shared)),
        )
        t5 = transformers.T5Config(d_model=64, num_heads=4, d_kv=16, num_layers=2, d_ff=128, **shared)
        t5.decoder_start_token_id = 0
        yield f"T5, 2 + 2 layers, {implementation}", transformers.T5ForConditionalGeneration(t5)


def seconds(run: Callable[[], object]) -> float:
    """The median time of a few runs, the first not counted."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def forward_seconds(module: nn.Module) -> float:
    seen, _ = find_call(module, Contract())
    assert seen is not None
    with torch.no_grad():
        return seconds(lambda: module.eval()(*seen.call.args, **seen.call.kwargs))


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, median of {REPEATS}")
    print(f"{'module':52} {'check':>8} {'forwards':>9} {'sites':>6}  findings at error or warning")
    for name, module in (*layers(), *models()):
        report = check(module)
        taken = seconds(lambda module=module: check(module))  # type: ignore[misc]
        ratio = taken / forward_seconds(module)
        failing = [finding.code for finding in report if finding.fails]
        print(f"{name:52} {taken:6.3f} s {ratio:9.0f} {len(report.sites):6}  {', '.join(failing) or 'none'}")


if __name__ == "__main__":
    main()
