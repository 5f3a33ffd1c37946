"""What setup.cfg can't say: the project's addresses."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from setuptools import setup


def addresses() -> dict[str, Any]:
    """The project's addresses, and the README, in which links are whole as soon as the project has a home."""
    settings = ConfigParser(interpolation=None)
    settings.read("setup.cfg", "utf-8")
    home = settings["tool:home"]["address"].rstrip("/")
    readme = Path("README.md").read_text("utf-8")
    urls = {"Original (Erlang)": "https://github.com/uwiger/locks"}
    if home:
        readme = re.sub(r"(?<=\]\()(?!\w+:|#)", f"{home}/blob/HEAD/", readme)
        readme = re.sub(r'(?<=src=")(?!\w+:)', f"{home}/raw/HEAD/", readme)
        urls = {
            "Source": home,
            "Documentation": f"{home}/blob/HEAD/docs/index.md",
            "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
            "Issues": f"{home}/issues",
            **urls,
        }
    return {"project_urls": urls, "long_description": readme}


setup(**addresses())
