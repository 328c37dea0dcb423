"""The documentation site: ``make docs`` builds it into ``build/docs``, without the network.

Sphinx reads the same Markdown files that a repository's web page shows, links and anchors included.
What only a site needs, its table of contents and the text of docstrings, is added here, so that the
files stay plain. A warning is an error: a link that leads nowhere ends the build.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

import hami

project = "hami"
release = hami.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "examples/README.md",
    "shim/**README.md",
    "tests/kubernetes/README.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "**/build", "**/__pycache__", "shared"]

CONTENTS = """
```{toctree}
:hidden:
:caption: Start

Overview <self>
Demo <demo>
Install <install>
From HAMi <migrate-from-hami>
Ask for a part of a device <pods>
```
```{toctree}
:hidden:
:caption: Use

Simulate <simulate>
../examples/README
Quota <quota>
Resize <resize>
Recommend <recommend>
Scheduler <scheduler>
Node agent <node-agent>
NVIDIA <nvidia>
Enforcement <enforcement>
Metrics and API <metrics>
Monitor <monitor>
```
```{toctree}
:hidden:
:caption: Understand

concepts
architecture
glossary
benchmarks
```
```{toctree}
:hidden:
:caption: Extend

Plugins <plugins>
Hooks <hooks>
```
```{toctree}
:hidden:
:caption: Work on it
:glob:

../CONTRIBUTING
../tests/kubernetes/README
../shim/**README
```
"""

HOOKS = """
```{eval-rst}
.. autoclass:: hami.hookspecs.SchedulerHooks
   :members:
   :member-order: bysource

.. autoclass:: hami.hookspecs.NodeHooks
   :members:
   :member-order: bysource
```
"""

# Markdown as a repository's web page reads it; anchors of headings down to the fourth level.
myst_heading_anchors = 4
highlight_language = "none"  # of indented blocks: commands and what they print

autodoc_typehints = "none"  # the docstrings say them

html_theme = "furo"
html_extra_path = ["site"]  # the page at the top, which leads to the first one
html_title = "hami"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def add_what_a_site_needs(_: Sphinx, docname: str, source: list[str]) -> None:
    source[0] += {root_doc: CONTENTS, "docs/hooks": HOOKS}.get(docname, "")


def as_fields(
    _app: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """A hook's sections (``Called: ...``) become fields, its arguments a list of definitions."""
    if what == "method":
        text = re.sub(r"^(\w[\w ]*):", r":\1:", "\n".join(lines), flags=re.MULTILINE)
        before, _, rest = text.partition("\n:Args:\n")
        args, section, after = rest.partition("\n:Returns:")
        args = re.sub(r"^    (\w+): ", r"    ``\1``\n        ", args, flags=re.MULTILINE)
        text = f"{before}\n:Args:\n{args}{section}{after}"
        lines[:] = text.replace("\n:Called:", "\n\n:Called:").splitlines()


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_what_a_site_needs)
    app.connect("autodoc-process-docstring", as_fields)
