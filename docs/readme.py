"""Writes the pictures of the README: `python docs/readme.py` (its badges, and the plot of its first snippet's run)."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH = 6.6  # of a letter of a badge, in pixels


def badges() -> dict[str, str]:
    """The badges as SVG by file name, with the versions of Python and the license of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [name.rsplit(" ", 1)[1] for name in project["classifiers"] if re.search(r"Python :: 3\.\d", name)]
    return {
        "badge-python.svg": _badge("python", f"{pythons[0]} to {pythons[-1]}"),
        "badge-license.svg": _badge("license", project["license"]),
    }


def _badge(name: str, value: str) -> str:
    left, right = (round(WIDTH * len(text)) + 12 for text in (name, value))
    head = f'width="{left + right}" height="20" role="img" aria-label="{name}: {value}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {head}>
<title>{name}: {value}</title>
<rect width="{left + right}" height="20" rx="3" fill="#334155"/>
<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" fill="#1d4ed8"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2:g}" y="14">{name}</text>
<text x="{left + right / 2:g}" y="14">{value}</text>
</g>
</svg>
"""


def picture(path: Path) -> None:
    """The figure of the run that the first snippet of the README makes."""
    found = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], "README.md", "exec"), names)
    names["run"].plot().savefig(path)


if __name__ == "__main__":
    for name, text in badges().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    picture(IMAGES / "readme.png")
