"""Is everything in the installed package that is in the tree: examples, templates, types?"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import linnet

tree, there = Path(sys.argv[1]).resolve(), Path(linnet.__file__).resolve().parent
if tree in there.parents:
    sys.exit(f"{there} is not outside the tree.")
listed = subprocess.run(["git", "ls-files"], cwd=tree, check=True, capture_output=True, text=True).stdout.splitlines()
places = {"src/linnet": Path(), "docs/theory": Path("lab/theory")}
wanted = [
    place / Path(line).relative_to(folder)
    for folder, place in places.items()
    for line in listed
    if line.startswith(f"{folder}/")
]
missing = [str(path) for path in wanted if not (there / path).is_file()]
if missing or Path("py.typed") not in wanted:
    sys.exit(f"the wheel lacks {', '.join(missing) or 'py.typed'}.")
sys.stdout.write(f"linnet {version('linnet')}: {len(wanted)} files are where they should be.\n")
