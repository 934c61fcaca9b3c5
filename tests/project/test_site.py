"""The guide builds strictly, needs no network, and its faults are found."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from html import unescape
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest
import yaml
from documents import ROOT

mkdocs = pytest.importorskip("mkdocs", reason="pip install pyg_graphzero[docs]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide, as `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.mark.long
def test_every_link_leads_to_a_file_and_nothing_is_fetched(site):
    pages = sorted(site.glob("*.html"))
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= {page.stem for page in pages}
    for page in pages:
        html = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"', html)
        loaded += re.findall(r'<link\b[^>]*\bhref="([^"]+)"', html)
        assert loaded
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page.name
        links = loaded + re.findall(r'<a\b[^>]*\bhref="([^"#?]+)', html)
        for link in links:
            if not re.match(r"https?:|mailto:|data:", link) and page.stem != "404":
                assert (page.parent / unquote(link.split("?")[0])).exists(), (page.name, link)
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?https?:", sheet.read_text()), sheet


@pytest.mark.long
def test_the_api_is_all_there(site):
    """Every public name has its place, and its examples are code."""
    import pyg_graphzero as gz

    html = (site / "api.html").read_text()
    for module in (gz, gz.inference, gz.loader):
        for name in module.__all__:
            if not isinstance(getattr(module, name), ModuleType):
                assert re.search(rf'id="pyg_graphzero\.[\w.]*\b{name}"', html), name
    assert "&gt;&gt;&gt; " in html
    assert ":class:" not in html
    assert ":func:" not in html


@pytest.mark.long
def test_lines_of_code_fit(site):
    """Signatures are set in lines, arguments are no tables, long lines are wrapped."""
    html = (site / "api.html").read_text()
    signatures = re.findall(r'doc-signature highlight">(.*?)</code>', html, re.DOTALL)
    assert len(signatures) > 30
    for signature in signatures:
        lines = unescape(re.sub(r"<[^>]+>", "", signature)).splitlines()
        assert max(map(len, lines)) <= 100, lines
    assert "<th>Type</th>" not in html
    sheet = site / "assets" / "wide.css"
    assert "white-space: pre-wrap" in sheet.read_text()
    assert all(sheet.name in page.read_text() for page in site.glob("*.html"))


def test_faults_are_warnings(tmp_path, caplog):
    """With the settings of the guide: each of them would fail the strict build."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(
        "[figures](../figures.json) [nowhere](../gone.json) [page](none.md) "
        "[anchor](other.md#gone) [there](other.md#here)\n"
    )
    (docs / "other.md").write_text("# Here\n")
    (docs / "orphan.md").write_text("# Orphan\n")
    (tmp_path / "figures.json").write_text("{}")
    settings |= {
        "hooks": [str(ROOT / "tools" / "docs_hook.py")],
        "nav": ["index.md", "other.md", "missing.md"],
        "plugins": [],
        "site_dir": str(tmp_path / "site"),
        "theme": "mkdocs",
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(load_config(str(tmp_path / "mkdocs.yml")))
    warnings = "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    for fault in ("../gone.json", "none.md", "other.md#gone", "orphan.md", "missing.md"):
        assert fault in warnings
    assert "figures.json" not in warnings
    assert "other.md#here" not in warnings
    assert (tmp_path / "site" / "repository" / "figures.json").read_text() == "{}"
    index = (tmp_path / "site" / "index.html").read_text()
    assert 'href="repository/figures.json"' in index
    assert f"pyg_graphzero {version('pyg_graphzero')}" in index
