"""Times `attn_guard.check` on single layers and small whole models, after imports; prints one line each.

Run: ``python tests/bench/check_layers.py [--large]``. Each figure is the median of several checks of the same module,
in one process on one thread, in processor time, which other work on the machine disturbs least. ``forwards`` is the
time of a check over that of one forward pass on the inputs that the check uses, in evaluation mode and without
gradients, timed right after it so that both meet the same machine; ``calls`` is how often the check calls the module.
``--large`` checks a model of the size of GPT-2 small, once.
"""

from __future__ import annotations

import argparse
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

REPEATS = 15
FORWARDS = 40  # that are timed together


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


def seconds(run: Callable[[], object], at_once: int = 1) -> float:
    """The processor time of a run, as the mean of ``at_once``; one before them is not counted."""
    run()
    start = time.process_time()
    for _ in range(at_once):
        run()
    return (time.process_time() - start) / at_once


def cost(module: nn.Module) -> tuple[float, float]:
    """(seconds of a check, the same in forward passes), each the median of several."""
    seen, _ = find_call(module, Contract())
    assert seen is not None
    call = seen.call
    module.eval()
    with torch.no_grad():
        checks, forwards = zip(
            *(
                (seconds(lambda: check(module)), seconds(lambda: module(*call.args, **call.kwargs), FORWARDS))
                for _ in range(REPEATS)
            ),
            strict=True,
        )
    ratios = [whole / one for whole, one in zip(checks, forwards, strict=True)]
    return statistics.median(checks), statistics.median(ratios)


def calls(module: nn.Module) -> int:
    """How often a check calls the module."""
    counted: list[object] = []
    hook = module.register_forward_pre_hook(lambda *_: counted.append(None))
    check(module)
    hook.remove()
    return len(counted)


def table() -> None:
    print(f"{'module':52} {'check':>8} {'forwards':>9} {'calls':>6} {'sites':>6}  findings at error or warning")
    for name, module in (*layers(), *models()):
        report = check(module)
        taken, ratio = cost(module)
        failing = [finding.code for finding in report if finding.fails]
        shown = ", ".join(failing) or "none"
        print(f"{name:52} {taken:6.3f} s {ratio:9.0f} {calls(module):6} {len(report.sites):6}  {shown}", flush=True)


def large() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    module = GPT2LMHeadModel(GPT2Config())
    millions = sum(parameter.numel() for parameter in module.parameters()) / 1e6
    start, worked = time.perf_counter(), time.process_time()
    report = check(module)
    taken, worked = time.perf_counter() - start, time.process_time() - worked
    failing = ", ".join(finding.code for finding in report if finding.fails) or "none"
    print(
        f"GPT-2 small, {millions:.0f} million random parameters: {taken:.1f} s by the clock, {worked:.1f} s of the "
        f"processor, {len(report.sites)} sites, {failing}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="a model of the size of GPT-2 small instead")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, median of {REPEATS}")
    (large if parser.parse_args().large else table)()


if __name__ == "__main__":
    main()
