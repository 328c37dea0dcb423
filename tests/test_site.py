"""The documentation site: it builds offline without a warning, and nothing in it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


class Page(HTMLParser):
    """What a page is reached by, what it leads to, and what a browser fetches to show it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.fetched += [found[name] for name in ("src", "srcset", "data") if name in found]
        if tag == "link":
            self.fetched.append(found.get("href", ""))
        self.fetched += urls(found.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.fetched += urls(data) if self.lasttag == "style" else ()


def urls(style: str) -> list[str]:
    return re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]+)", style)


def from_elsewhere(address: str) -> bool:
    return bool(re.match(r"\s*(?!data:)([a-z][a-z0-9+.-]*:|//)", address, re.IGNORECASE))


def read(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def fetched_from_elsewhere(site: Path) -> Iterator[str]:
    for path, page in read(site).items():
        yield from (f"{path.name}: {one}" for one in page.fetched if from_elsewhere(one))
    for path in site.rglob("*.css"):
        yield from (f"{path.name}: {one}" for one in urls(path.read_text()) if from_elsewhere(one))


def leading_nowhere(site: Path) -> Iterator[str]:
    pages = read(site)
    for path, page in pages.items():
        for link in page.links + page.fetched:
            if from_elsewhere(link) or link.startswith("data:"):
                continue
            address, _, anchor = unquote(link).partition("#")
            target = (path.parent / address.partition("?")[0]).resolve() if address else path
            missed = target in pages and anchor and anchor not in pages[target].ids
            if not target.is_file() or missed:
                yield f"{path.name}: {link}"


@pytest.fixture
def site(tmp_path) -> Path:
    """Built as ``make docs`` does it."""
    makefile = (ROOT / "Makefile").read_text()
    (options,) = re.findall(
        r"^\t\$\(BIN\)/python (-m sphinx .*) build/docs$", makefile, re.MULTILINE
    )
    assert "-W" in options.split()
    command = [sys.executable, *options.split(), str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path / "site"


def test_the_site_is_whole(site):
    """One test, because it is one build: seconds."""
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert documents == {path.stem for path in (site / "docs").glob("*.html")}
    assert list(fetched_from_elsewhere(site)) == []
    assert list(leading_nowhere(site)) == []


def test_what_is_wrong_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x">1</a><a href="#y">2</a><a href="b.html">3</a><a href="https://a.b">4</a>'
        '<img src="https://a.b/c.png"><img src="a.html"><script src="//a.b/d.js"></script>'
        "<style>@import 'http://a.b/e.css'; p {background: url(data:x)}</style>"
    )
    (tmp_path / "a.css").write_text("p {background: url('https://a.b/f.woff')}")
    assert list(leading_nowhere(tmp_path)) == ["a.html: #y", "a.html: b.html"]
    assert [one.partition(": ")[2] for one in fetched_from_elsewhere(tmp_path)] == [
        "https://a.b/c.png",
        "//a.b/d.js",
        "http://a.b/e.css",
        "https://a.b/f.woff",
    ]


@pytest.mark.parametrize("picture", [pytest.param(path, id=path.stem) for path in PICTURES])
def test_a_picture_speaks_to_everybody(picture):
    """In light and dark, to who cannot see it, and without asking anyone else."""
    text = picture.read_text()
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"<title id=\"title\">[^<]+</title>\s*<desc id=\"about\">[^<]+</desc>", text)
    assert not re.search(r"(?:href|src)=|url\((?!#)|@import", text)
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    assert any(re.search(rf"!\[[^\]]+\]\(pictures/{picture.name}\)", page) for page in pages)
