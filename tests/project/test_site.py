"""The guide builds strictly, needs no network, and its faults are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
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
