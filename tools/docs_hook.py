"""Links of the guide that leave `docs/`: to figures, charts and examples of the repository.

A page links to them as the repository has them (`../benchmarks/results/performance.json`), so it
reads well there. For the site, the files linked to are copied beside the pages, below
`repository/`, and the links follow them: the site is whole without the repository and the network.
A link to what is not a file is left as it is, and fails the strict build.

The site's name has the version, its footer the repository that ``[project.urls]`` names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
_FOLDER = "repository"


def on_config(config: Any) -> Any:
    """Says of which version the site is, and where the repository is, if the project says so."""
    project = Path(__file__).resolve().parents[1].joinpath("pyproject.toml").read_text()
    found = dict(re.findall(r'^(version|Repository) = "(.+)"', project, re.MULTILINE))
    config.site_name += f" {found['version']}"
    if "Repository" in found:
        config.copyright = f'<a href="{found["Repository"]}">Repository</a>'
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the files of the repository that pages link to."""
    root = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        for path in _LINK.findall(page.content_string):
            uri = f"{_FOLDER}/{path}"
            if (root / path).is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, files: Files, **_: Any) -> str:
    """Turns links to those files to where they are in the site."""

    def moved(link: re.Match[str]) -> str:
        uri = f"{_FOLDER}/{link[1]}"
        return link[0] if files.get_file_from_path(uri) is None else uri

    return _LINK.sub(moved, markdown)
