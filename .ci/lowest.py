"""Prints the lower bounds of what Linnet needs as constraints: every `>=` of pyproject.toml as `==`."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = (line for name in ("data", "images", "lora") for line in project["optional-dependencies"][name])
for line in [*project["dependencies"], *extras]:
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups()  # all are of this form
    sys.stdout.write(f"{name}=={version}\n")
