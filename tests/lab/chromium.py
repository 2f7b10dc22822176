"""Whether there is a browser to look at the page with."""

from __future__ import annotations

import shutil

import pytest

needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("google-chrome")), reason="no Chromium: apt-get install chromium"
)
