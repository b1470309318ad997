"""A small sample of the zoo: each model runs small, shows its attention, and nothing is said against it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest

pytest.importorskip("transformers")

from tests.zoo.models import example
from tests.zoo.probing import one_thread, probe_model

SAMPLE = (
    "albert bart bloom clip deberta-v2 gemma2 gpt_neo granite jetmoe longformer mamba2 mixtral mpt opt "
    "phi3 qwen3_moe swin t5 vit wav2vec2 whisper xlnet"
).split()
WITHOUT_ATTENTION = {"mamba2"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    one_thread()
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.zoo
@pytest.mark.parametrize("kind", SAMPLE)
def test_a_model_as_its_authors_wrote_it(kind: str) -> None:
    found = example(kind)
    result = probe_model(kind, found.model, found.kwargs)
    assert result.whole is not None
    parts = [result.whole, *result.classes]
    assert [finding for part in parts for finding in part.findings if finding["severity"] != "info"] == []
    if kind not in WITHOUT_ATTENTION:
        assert result.whole.sites
        assert any(not part.declined for part in result.classes)
