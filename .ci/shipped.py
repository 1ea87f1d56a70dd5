"""Is everything in the installed package that is in the tree: examples, templates, types?"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import linnet

tree, there = Path(sys.argv[1]).resolve(), Path(linnet.__file__).resolve().parent
if tree in there.parents:
    sys.exit(f"{there} is not outside the tree.")
listed = subprocess.run(["git", "ls-files", "src/linnet"], cwd=tree, check=True, capture_output=True, text=True)
wanted = [Path(line).relative_to("src/linnet") for line in listed.stdout.splitlines()]
missing = [str(path) for path in wanted if not (there / path).is_file()]
if missing or Path("py.typed") not in wanted:
    sys.exit(f"the wheel lacks {', '.join(missing) or 'py.typed'}.")
sys.stdout.write(f"linnet {version('linnet')}: {len(wanted)} files are where they should be.\n")
