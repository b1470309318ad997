"""Sources as test items."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.conftest import Project


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest("--attn-guard", "--co", "-q", *arguments)
    return sorted(line for line in result.outlines if line.endswith("::attn-guard"))


def place_model(pytester: pytest.Pytester, *paths: str) -> None:
    """Copies of ``model.py`` at other places."""
    for path in paths:
        target = pytester.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((pytester.path / "model.py").read_text())


def test_a_broken_source_fails_as_an_item_of_its_own(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    result = pytester.runpytest("--attn-guard", "-m", "attn_guard")
    result.assert_outcomes(failed=1, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*error[[]ATN101[]] missing-scale*",
            "*--> model.py:*",
            "*help: *",
            "FAILED model.py::attn-guard - ATN101 missing-scale*",
        ]
    )


def test_a_correct_source_passes(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    pytester.runpytest("--attn-guard", "-m", "attn_guard").assert_outcomes(passed=1, deselected=1)


def test_files_without_attention_are_no_items(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    pytester.makepyfile(plain="x = 1\n")
    assert collected(pytester) == ["model.py::attn-guard"]


def test_sources_outside_testpaths_are_items_too(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    pytester.makeini("[pytest]\ntestpaths = tests\npythonpath = .\n")
    place_model(pytester, "src/pkg/attention.py", "pkg/inner/attention.py", "scripts/loose.py", "venv/pkg/attention.py")
    (pytester.path / "pkg" / "__init__.py").touch()
    (pytester.path / "tests").mkdir()
    (pytester.path / "test_model.py").rename(pytester.path / "tests" / "test_model.py")
    assert collected(pytester) == [
        "model.py::attn-guard",
        "pkg/inner/attention.py::attn-guard",
        "src/pkg/attention.py::attn-guard",
    ]


def test_configured_paths_take_the_place_of_the_usual_ones(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    place_model(pytester, "src/a.py", "lib/b.py", "lib/vendor/c.py")
    pytester.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        testpaths = ["tests"]
        [tool.attn-guard]
        paths = ["lib"]
        exclude = ["lib/vendor"]
        """
    )
    (pytester.path / "tests").mkdir()
    (pytester.path / "test_model.py").rename(pytester.path / "tests" / "test_model.py")
    assert collected(pytester) == ["lib/b.py::attn-guard"]


def test_a_file_that_pytest_walks_is_one_item(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    place_model(pytester, "src/a.py")
    assert collected(pytester, ".") == ["model.py::attn-guard", "src/a.py::attn-guard"]


def test_a_single_test_is_run_without_the_sources(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    result = pytester.runpytest("--attn-guard", "--co", "-q", "test_model.py::test_forward_keeps_the_shape")
    assert [line for line in result.outlines if "::" in line] == ["test_model.py::test_forward_keeps_the_shape"]


def test_an_item_can_be_named(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    pytester.runpytest("--attn-guard", "model.py::attn-guard").assert_outcomes(passed=1)


def test_a_comment_silences_the_item(pytester: pytest.Pytester, project: Project) -> None:
    path = project("broken") / "model.py"
    path.write_text(path.read_text().replace("# <- ATN101", "# attn-guard: ignore[ATN101] cosine attention"))
    pytester.runpytest("--attn-guard").assert_outcomes(passed=2)


def test_configured_ignores_hold_for_both_readers(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    pytester.makepyprojecttoml("[tool.attn-guard]\nignore = ['ATN101']\n")
    pytester.runpytest("--attn-guard").assert_outcomes(passed=2)


def test_the_nearest_configuration_counts_for_a_file(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    place_model(
        pytester, "strict/attention.py", "lax/attention.py", "lax/vendor/attention.py", "lax/inner/attention.py"
    )
    pytester.makepyprojecttoml("[tool.attn-guard]\nselect = ['ATN2']\n")
    tables = {"strict": "select = ['ATN101']", "lax": "exclude = ['vendor']\nseverity = { ATN1 = 'info' }"}
    for folder, table in tables.items():
        (pytester.path / folder / "pyproject.toml").write_text(f"[tool.attn-guard]\n{table}\n")
    result = pytester.runpytest("--attn-guard", "-m", "attn_guard")
    result.assert_outcomes(passed=3, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["FAILED strict/attention.py::attn-guard - ATN101 missing-scale*"])


@pytest.mark.parametrize("walked", ["inner", "src"])
def test_a_bad_configuration_beside_a_file_stops_the_run(
    pytester: pytest.Pytester, project: Project, walked: str
) -> None:
    project("fixed")
    pytester.makeini("[pytest]\ntestpaths = inner\npythonpath = .\n")
    place_model(pytester, f"{walked}/attention.py", "inner/test_other.py")
    (pytester.path / walked / "pyproject.toml").write_text("[tool.attn-guard]\nselect = ['ATN999']\n")
    result = pytester.runpytest("--attn-guard")
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED)
    said = str(result.stderr) + str(result.stdout)
    assert "attn-guard: unknown code 'ATN999'" in said
    assert "Traceback" not in said
    assert "sources.py" not in said


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("slect = []", "unknown key 'slect'"),
        ("select = ['ATN999']", "unknown code 'ATN999'"),
        ("paths = ['nowhere']", "nowhere: no such file or folder"),
    ],
)
def test_a_bad_configuration_is_a_usage_error(pytester: pytest.Pytester, table: str, message: str) -> None:
    pytester.makepyprojecttoml(f"[tool.attn-guard]\n{table}\n")
    pytester.makepyfile("def test_one(): pass\n")
    result = pytester.runpytest("--attn-guard")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in str(result.stderr) + str(result.stdout)
    assert "Traceback" not in str(result.stderr) + str(result.stdout)


def test_the_ini_option_stands_for_the_flag(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    pytester.makeini("[pytest]\nattn_guard = true\n")
    result = pytester.runpytest("-m", "attn_guard")
    result.assert_outcomes(failed=1, deselected=1)
