"""Draws packages with attention written in torch from a package index, and unpacks their Python files.

``python tests/bench/draw_corpus.py FOLDER --index URL --first 0 --last 3000`` takes these of the shuffled names that
speak of what attention is used for; ``--list FILE`` takes the packages of a list, in the versions that it names. A
package counts where one of its files holds torch, the word attention and a softmax or a built-in attention. Nothing of
it is run. FOLDER gets a folder for each package, and ``list.txt`` with names and versions.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

SEED = 20261130
LARGEST = 6_000_000  # bytes of an archive
_ABOUT = re.compile(
    r"attention|attn|transformer|former(-|$)|gpt|bert|(^|-)vit|torch|diffusion|(^|-)tts|(^|-)asr|seq2seq|(^|-)esm"
    r"|protein|speech|music|llama|whisper|(^|-)clip|segment|forecast"
)
_LINK = re.compile(r'<a href="([^"/]+)/">')
_CORE = re.compile(rb"softmax|scaled_dot_product_attention|MultiheadAttention")


@dataclass(frozen=True, slots=True)
class Package:
    """The Python files of one version of a package, by their path in its archive."""

    name: str
    version: str
    files: Mapping[str, bytes]

    @property
    def holds_attention(self) -> bool:
        return any(b"torch" in text and b"ttention" in text and _CORE.search(text) for text in self.files.values())

    def unpack(self, folder: Path) -> None:
        for path, text in self.files.items():
            parts = PurePosixPath(path).parts
            if ".." not in parts and not path.startswith("/"):
                target = folder.joinpath(self.name, *parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", required=True, help="address of a package index that answers as PyPI does")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int)
    parser.add_argument("--list", type=Path, help="take these packages: a line for each, name==version")
    options = parser.parse_args()
    wanted = read_list(options.list) if options.list else drawn(options.index)[options.first : options.last]
    options.folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(16) as pool, (options.folder / "list.txt").open("w") as kept:
        for package in pool.map(lambda name: fetch(options.index, *name), wanted):
            if package and package.holds_attention:
                package.unpack(options.folder)
                kept.write(f"{package.name}=={package.version}\n")


def read_list(file: Path) -> list[tuple[str, str]]:
    """Names and versions of a list; lines that begin with # say where it is from."""
    lines = (line for line in file.read_text().splitlines() if line and not line.startswith("#"))
    return [(name, version) for name, _, version in (line.partition("==") for line in lines)]


def drawn(index: str) -> list[tuple[str, str]]:
    """The names of an index that speak of attention and its uses, in an order that the seed decides."""
    names = sorted(name for name in _LINK.findall(_get(f"{index}/simple/").decode()) if _ABOUT.search(name))
    random.Random(SEED).shuffle(names)
    return [(name, "") for name in names]


def fetch(index: str, name: str, version: str) -> Package | None:
    """A package in a version, or in the latest; None where the index has no small archive of it that can be read."""
    try:
        about = json.loads(_get(f"{index}/pypi/{name}/json"))
        version = version or about["info"]["version"]
        archive = _smallest(about["releases"][version])
        if archive is None:
            return None
        data = _get(urllib.parse.urljoin(f"{index}/simple/{name}/", archive["url"]))
        return Package(name, version, dict(_sources(archive["filename"], data)))
    except (OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile):
        return None


def _smallest(archives: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The source archive, or else the smallest wheel."""
    small = [one for one in archives if one["size"] <= LARGEST and not one["yanked"]]
    return min(small, key=lambda one: (one["packagetype"] != "sdist", one["size"]), default=None)


def _sources(filename: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if filename.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if name.endswith(".py"))
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(".py") else None
            if file is not None:
                yield member.name, file.read()


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        content: bytes = answer.read()
        return content


if __name__ == "__main__":
    main()
