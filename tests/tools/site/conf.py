# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx over the folder that tests/tools/docs.py makes. The site loads nothing from elsewhere."""

import os

project = "gpufleet.acceptance"
version = release = os.environ["SITE_VERSION"]
copyright = "gpufleet.acceptance contributors, GPL-3.0-or-later"
html_title = f"{project} {version}"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline"]
# Anchors of headings as GitHub makes them, which the pages use in links.
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Blocks of commands and output are no language that could be highlighted.
highlight_language = "text"
nitpicky = True
