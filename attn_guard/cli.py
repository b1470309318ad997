"""The command line: arguments and exit codes only.

0: clean. 1: something was found. 2: could not run. 130: interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from attn_guard import __version__
from attn_guard.contract import MASK_MEANINGS
from attn_guard.errors import UsageError
from attn_guard.findings import Report, merge
from attn_guard.report import FORMATS, render
from attn_guard.report.style import Style, counted, needs_ascii, wants_color

if TYPE_CHECKING:
    from attn_guard.baseline import Baseline
    from attn_guard.config import Config, Nearest


CLEAN, FOUND, NOT_RUN, INTERRUPTED = 0, 1, 2, 130
BASELINE = "attn-guard-baseline.json"  # where --write-baseline writes when no file is named


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
    except UsageError as error:
        print(f"attn-guard: error: {error}", file=sys.stderr)
        return NOT_RUN
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="attn-guard",
        description="Finds the silent mistakes in attention code.",
        epilog="Exit codes: 0 clean, 1 something was found, 2 could not run.",
    )
    parser.add_argument("--version", action="version", version=f"attn-guard {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_lint(commands)
    _add_check(commands)
    _add_xray(commands)
    explain = commands.add_parser("explain", help="say what a code means and how to mend it")
    explain.add_argument("code", metavar="CODE", help="such as ATN201 or mask-after-softmax")
    explain.set_defaults(run=_explain)
    commands.add_parser("rules", help="list the codes").set_defaults(run=_rules)
    commands.add_parser("demo", help="lint and probe broken examples").set_defaults(run=_demo)
    return parser


def _add_lint(commands: Any) -> None:
    lint = commands.add_parser("lint", help="read source files; needs no torch")
    lint.add_argument("paths", nargs="*", metavar="PATH", help="files and folders, or - (default: as configured, or .)")
    _add_selection(lint)
    lint.add_argument("--stdin-filename", metavar="PATH", help="the path that the text of - is reported under")
    lint.add_argument("--baseline", metavar="FILE", help="leave out the findings that this file accepts")
    lint.add_argument(
        "--write-baseline", action="store_true", help=f"accept all there is now, in --baseline or {BASELINE}"
    )
    lint.add_argument(
        "--add-ignore",
        nargs="?",
        const="",
        metavar="REASON",
        help="write a comment that silences it beside each finding that fails the run",
    )
    lint.add_argument("--fix", action="store_true", help="mend what is certain to be meant otherwise")
    lint.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: also what should be looked at")
    lint.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    lint.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found")
    lint.add_argument("--jobs", type=_jobs, default=0, metavar="N", help="processes to use (default: one a core)")
    lint.add_argument("--no-cache", action="store_true", help="read every file anew, and remember nothing")
    lint.add_argument("--statistics", action="store_true", help="count the findings by code instead of showing them")
    lint.set_defaults(run=_lint)


def _add_check(commands: Any) -> None:
    check = commands.add_parser("check", help="run a module and probe its attention; needs torch")
    _add_target(check)
    flag = argparse.BooleanOptionalAction
    check.add_argument("--causal", action=flag, help="each output depends on no later input")
    check.add_argument("--cross", action=flag, help="queries come from one input, keys and values from another")
    check.add_argument("--batch-first", action=flag, help="inputs are (batch, time, features)")
    check.add_argument("--scale", type=float, help="the factor on the scores, if not 1/sqrt(head_dim)")
    check.add_argument(
        "--mask",
        action="append",
        type=_mask,
        default=[],
        metavar="NAME=MEANING",
        help=f"what True means in a mask argument: {', '.join(MASK_MEANINGS)}; may be repeated",
    )
    check.add_argument("--window", type=int, metavar="N", help="how many positions a query sees, itself included")
    check.add_argument("--segments", metavar="NAME", help="the argument that holds document ids")
    check.add_argument("--padding-side", choices=("left", "right"), help="on which side batches are padded")
    check.add_argument("--positions", action=flag, help="the module knows the order of its inputs")
    check.add_argument("--cache", metavar="NAME", help="the argument that holds past keys and values")
    check.add_argument("--seed", type=int, default=0, help="of the inputs that are made up (default: 0)")
    check.add_argument(
        "--fuzz",
        type=int,
        default=0,
        metavar="N",
        help="also try N other sizes, equal ones among them; needs hypothesis",
    )
    _add_selection(check)
    check.set_defaults(run=_check)


def _add_xray(commands: Any) -> None:
    xray = commands.add_parser("xray", help="run a module and draw the anatomy of its attention; needs torch")
    _add_target(xray)
    xray.set_defaults(run=_xray)


def _add_target(parser: argparse.ArgumentParser) -> None:
    example = '"model.py:MultiHeadAttention(64, 8)" or "package.module:build()"'
    parser.add_argument("target", metavar="TARGET", help=example)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--select", action="extend", type=_codes, metavar="CODES", help="only these, such as ATN201,ATN3"
    )
    parser.add_argument("--ignore", action="extend", type=_codes, metavar="CODES", help="all but these")
    parser.add_argument("--preview", action="store_true", help="also what is not proven yet")
    parser.add_argument("--output-format", choices=FORMATS, default="full", metavar="FORMAT", help=", ".join(FORMATS))


def _codes(value: str) -> list[str]:
    return [code for code in value.replace(",", " ").split() if code]


def _jobs(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r}: expected a number of processes, from 1")
    return int(value)


def _mask(value: str) -> tuple[str, str]:
    name, equals, meaning = value.partition("=")
    if not (name and equals and meaning in MASK_MEANINGS):
        raise argparse.ArgumentTypeError(f"{value!r}: expected NAME=MEANING, with one of {', '.join(MASK_MEANINGS)}")
    return name, meaning


def _lint(options: argparse.Namespace) -> int:
    config, nearest = _config(options), _nearest(options)
    options.content = sys.stdin.buffer.read() if options.paths == ["-"] else None
    report = _read(options, config, nearest)
    file = options.baseline or (config.baseline and str(config.root / config.baseline))
    if options.write_baseline:
        return _accept(report, Path(file or BASELINE))
    baseline = None
    if file:
        from attn_guard.baseline import Baseline

        baseline = Baseline.read(Path(file))
        report = baseline.apply(report)
    if options.add_ignore is not None:
        return _add_ignores(report, options.add_ignore)
    if options.fix or options.diff:
        return _fix(options, nearest, report, baseline)
    if options.statistics:
        _print(_statistics(report))
    else:
        _print_report(report, options.output_format)
    return CLEAN if options.exit_zero or report.ok else FOUND


def _read(options: argparse.Namespace, config: Config, nearest: Nearest) -> Report:
    """What the linter says about the files that are asked for, or about standard input, each under the configuration
    that is nearest to it."""
    from attn_guard.lint.cache import FOLDER
    from attn_guard.lint.run import find_files, lint_files

    if options.paths == ["-"]:
        path = options.stdin_filename or "<stdin>"
        own = nearest.of(Path(path))
        return Report(files=1) if own.excludes(Path(path)) else _judged(nearest, path, options.content)
    paths = [Path(path) for path in options.paths] or [config.root / path for path in config.paths] or [Path()]
    by_root: dict[Path, tuple[Config, list[Any]]] = {config.root: (config, [])}
    for file in find_files(paths):
        own = nearest.of(file.path)
        if not own.excludes(file.path):
            by_root.setdefault(own.root, (own, []))[1].append(file)
    jobs, cache = options.jobs or os.cpu_count() or 1, None if options.no_cache else config.root / FOLDER
    return merge(
        own.apply(lint_files(files, **_selection(own), jobs=jobs, cache=cache)) for own, files in by_root.values()
    )


def _selection(config: Config) -> dict[str, Any]:
    return {"select": config.select, "ignore": config.ignore, "preview": config.preview}


def _judged(nearest: Nearest, path: str, content: bytes) -> Report:
    """What the linter says about a content under the path of a file."""
    from attn_guard.lint.run import lint_source

    own = nearest.of(Path(path))
    return own.apply(lint_source(content, path, **_selection(own)))


def _fix(options: argparse.Namespace, nearest: Nearest, report: Report, baseline: Baseline | None) -> int:
    """Makes the fixes, or shows what they would change; what cannot be mended is reported."""
    from attn_guard.fixing import changes, left

    def judge(path: str, content: bytes) -> Report:
        found = _judged(nearest, path, content)
        return baseline.apply(found) if baseline else found

    made = list(changes(report, judge, with_unsafe=options.unsafe_fixes, given=options.content))
    count = counted(sum(change.mended.fixed for change in made), "finding")
    if options.diff:
        for change in made:
            _print(change.diff())
        print(f"would fix {count}", file=sys.stderr)
        return FOUND if made and not options.exit_zero else CLEAN
    rest = left(report, made)
    if options.content is None:
        for change in made:
            change.write()
        _print_report(rest, options.output_format)
    else:
        sys.stdout.buffer.write(made[0].mended.content if made else options.content)
        sys.stdout.flush()
        print(render(rest, options.output_format, color=wants_color(sys.stderr)), file=sys.stderr)
    print(f"fixed {count}", file=sys.stderr)
    return CLEAN if options.exit_zero or rest.ok else FOUND


def _add_ignores(report: Report, reason: str) -> int:
    from attn_guard.gotchas.registry import entries
    from attn_guard.lint.add_ignore import ignoring
    from attn_guard.lint.rewrite import rewrite

    failing = [found for found in report.findings if found.fails and found.code in entries()]
    for path in dict.fromkeys(found.location.path for found in failing):
        here = [found for found in failing if found.location.path == path]
        rewrite(Path(path), partial(ignoring, findings=here, reason=reason))
    _print(f"silenced {counted(len(failing), 'finding')}")
    return CLEAN


def _accept(report: Report, file: Path) -> int:
    from attn_guard.baseline import Baseline

    baseline = Baseline.of(report, file)
    baseline.write(file)
    _print(f"{file} accepts {counted(baseline.accepted.total(), 'finding')}")
    return CLEAN


# The options of `check` that are promises under the same name (`Contract`).
_PROMISES = ("causal", "cross", "scale", "window", "segments", "batch_first", "padding_side", "positions", "cache")


def _check(options: argparse.Namespace) -> int:
    config = _config(options)
    with contextlib.redirect_stdout(sys.stderr):  # what the user's own code prints is no part of the report
        from attn_guard.probe.target import load

        module = load(options.target)
        from attn_guard.probe.check import check

        report = check(
            module,
            masks=dict(options.mask) or None,
            **{promise: getattr(options, promise) for promise in _PROMISES},
            select=config.select,
            ignore=config.ignore,
            preview=config.preview,
            seed=options.seed,
            fuzz=options.fuzz,
        )
    report = config.apply(report)
    _print_report(report, options.output_format)
    if not report.ok:
        return FOUND
    return NOT_RUN if "ATN903" in report.codes and not report.sites else CLEAN


def _xray(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr):
        from attn_guard.probe.target import load

        module = load(options.target)
        from attn_guard.probe.xray import xray

        seen = xray(module)
    _print(str(seen))
    return CLEAN


def _explain(options: argparse.Namespace) -> int:
    from attn_guard.explain import explain

    _print(explain(options.code).rstrip())
    return CLEAN


def _rules(options: argparse.Namespace) -> int:
    from attn_guard.explain import rules

    _print(rules())
    return CLEAN


def _demo(options: argparse.Namespace) -> int:
    from attn_guard.demo import demo

    for piece in demo(Style(color=wants_color(sys.stdout), ascii=needs_ascii())):
        _print(piece)
    return CLEAN


def _config(options: argparse.Namespace) -> Config:
    """The configuration that a run in the current folder has."""
    return _nearest(options).inside(Path.cwd().resolve())


def _nearest(options: argparse.Namespace) -> Nearest:
    """The configurations by file. ``--select`` replaces what is selected, ``--ignore`` adds to what is ignored."""
    from attn_guard.config import Nearest

    def adjust(config: Config) -> Config:
        return replace(
            config,
            select=tuple(options.select or config.select),
            ignore=(*config.ignore, *(options.ignore or ())),
            preview=options.preview or config.preview,
        )

    return Nearest(adjust, Path.cwd())


def _statistics(report: Report) -> str:
    names = {finding.code: finding.name for finding in report}
    return "\n".join(f"{count:>5}  {code}  {names[code]}" for code, count in report.codes.most_common())


def _print_report(report: Report, format: str) -> None:
    _print(render(report, format, color=wants_color(sys.stdout)))


def _print(text: str) -> None:
    """Prints a text; characters that the output cannot show become ``?``, and a reader that has left is no error."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
