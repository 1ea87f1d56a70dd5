"""Checks the source archive and the wheel: sizes, and that the archive has the files of the tree and no others."""

import subprocess
import sys
import tarfile
from pathlib import Path

WHEEL, SOURCE = 2e6, 8e6  # bytes at most
MADE = {"PKG-INFO"}  # by the build

folder, tree = Path(sys.argv[1]), Path(sys.argv[2])
(wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
for path, most in ((wheel, WHEEL), (source, SOURCE)):
    size = path.stat().st_size
    if size > most:
        sys.exit(f"{path.name} has {size / 1e6:.2f} MB, and at most {most / 1e6:g} MB are allowed.")
    sys.stdout.write(f"{path.name}: {size / 1e6:.2f} MB.\n")
with tarfile.open(source) as archive:
    packed = {member.name.partition("/")[2] for member in archive if member.isfile()} - MADE
listed = subprocess.run(["git", "ls-files"], cwd=tree, check=True, capture_output=True, text=True).stdout.splitlines()
if packed != {*listed}:
    sys.exit(f"the source archive and the tree differ in {', '.join(sorted(packed ^ {*listed}))}.")
sys.stdout.write(f"the source archive has the {len(listed)} files of the tree.\n")
