"""Compiled programs on disk: where they are kept, by whom, how many, and that nothing goes wrong with them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linnet as ln
from linnet._programs import trim

CODE = "import sys; from linnet.cli import main; sys.argv = ['linnet', *sys.argv[1:]]; main()"
ASKED = ("predict", "stability", "--depth", "3", "--spectrum", "3,2", "--lr", "0.1")  # which compiles three programs
COUNTED = """
import jax, linnet as ln
hits, compiled = [], []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
jax.monitoring.register_event_listener(
    lambda event, **_: compiled.append(event) if event.endswith("/cache_misses") else None
)
"""


def surroundings(tmp_path, **given):
    """The environment without what the tests tell JAX, and with a home that is empty at first."""
    ours = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT", "XDG_CACHE_HOME", "LINNET_CACHE", "PYTHONWARNINGS")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {"HOME": str(tmp_path)} | given


def command(*arguments, **environment):
    told = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr
    assert not told.stderr
    return told.stdout


def python(code, **environment):
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr
    assert not told.stderr
    return told.stdout


def kept(folder):
    return sorted(file.name for file in folder.glob("programs-*/*-cache"))


def test_commands_keep_what_they_compile_and_nothing_goes_wrong_with_it(tmp_path):
    home = surroundings(tmp_path)
    first = command(*ASKED, **home)
    folder = tmp_path / ".cache" / "linnet"
    programs = kept(folder)
    assert programs
    assert folder.stat().st_mode & 0o77 == 0  # what lies there is run: nobody else may write
    assert command(*ASKED, **home) == first
    assert kept(folder) == programs  # all of them were found
    for file in folder.glob("programs-*/*-cache"):
        file.write_bytes(file.read_bytes()[:50])
    assert command(*ASKED, **home) == first  # as if they were not there, and without a word


def test_where_programs_are_kept(tmp_path):
    plain = surroundings(tmp_path)
    (tmp_path / "file").write_text("")
    asked = "import linnet as ln; print(ln.cache_programs())"
    for given, place in (
        ({}, tmp_path / ".cache" / "linnet"),
        ({"XDG_CACHE_HOME": str(tmp_path / "x")}, tmp_path / "x" / "linnet"),
        ({"XDG_CACHE_HOME": "not/absolute"}, tmp_path / ".cache" / "linnet"),
        ({"LINNET_CACHE": str(tmp_path / "own")}, tmp_path / "own"),
        ({"LINNET_CACHE": "off"}, None),
        ({"HOME": str(tmp_path / "file")}, None),
        ({"HOME": "/proc/nobody"}, None),
        ({"LINNET_CACHE": str(tmp_path / "file" / "in")}, None),
    ):
        told = python(asked, **plain | given).strip()
        assert (str(Path(told).parent) if told != "None" else None) == (None if place is None else str(place))
        if place is not None:
            assert Path(told).is_dir()
    theirs = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    for code in (asked, f"import jax; {asked}"):
        assert python(code, **plain | theirs).strip() == str(tmp_path / "jax")
    assert "own" in python(asked, **plain | theirs | {"LINNET_CACHE": str(tmp_path / "own")})


@pytest.mark.slow
def test_a_cache_that_cannot_be_used_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    for wish in ("off", str(tmp_path / "file" / "in")):
        assert "stable" in command(*ASKED, **surroundings(tmp_path, LINNET_CACHE=wish))
    assert not (tmp_path / ".cache").exists()


@pytest.mark.slow
def test_in_python_before_and_after_the_first_program(tmp_path):
    work = "jax.jit(lambda x: x * {number})(3.0); print(len(hits), len(compiled)); "
    for place in ("one", "two"):
        folder = tmp_path / place
        code = COUNTED + work.format(number=5) + f"ln.cache_programs({str(folder)!r}); " + work.format(number=7)
        first = python(code, **surroundings(tmp_path)).split()
        assert first[:2] == ["0", "0"]  # before, nothing was kept
        assert int(first[3]) > 0
        assert python(code, **surroundings(tmp_path)).split()[2:] == [first[3], "0"]
    moved = f"ln.cache_programs({str(tmp_path / 'one')!r}); {work.format(number=7)}" + (
        f"ln.cache_programs({str(tmp_path / 'three')!r}); {work.format(number=9)}"
    )
    python(COUNTED + moved, **surroundings(tmp_path))
    assert kept(tmp_path / "three")


def test_processes_of_our_own_share_them(tmp_path):
    code = """
from linnet._pool import pool
import linnet as ln

def work(number):
    import jax
    return jax.config.jax_compilation_cache_dir, float(jax.jit(lambda x: x + 1)(number))

if __name__ == "__main__":
    place = ln.cache_programs()
    with pool(2) as processes:
        assert set(processes.map(work, [1.0, 2.0])) == {(str(place), 2.0), (str(place), 3.0)}
"""
    (tmp_path / "shared.py").write_text(code)
    subprocess.run([sys.executable, "shared.py"], check=True, cwd=tmp_path, env=surroundings(tmp_path))
    assert kept(tmp_path / ".cache" / "linnet")


def test_a_folder_that_cannot_be_written_to_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ln.InputError, match=r"folder = '.*file/in' is not allowed: folder must be one that can be"):
        ln.cache_programs(tmp_path / "file" / "in")


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    for folder in ("programs-a", "programs-b", "others"):
        (tmp_path / folder).mkdir()
    files = [
        tmp_path / "programs-a" / "x-cache",
        tmp_path / "programs-b" / "y-cache",
        tmp_path / "programs-a" / "z-cache",
    ]
    for age, file in enumerate(files):
        file.write_bytes(bytes(100))
        os.utime(file, (1e9 + 100 * age, 1e9))
    os.utime(files[0], (1e9 + 1000, 1e9))  # it was read since
    foreign = [tmp_path / "others" / "x-cache", tmp_path / "x-cache", tmp_path / "programs-a" / "mine.txt"]
    for file in foreign:
        file.write_bytes(bytes(1000))
    trim(tmp_path, 300)
    assert all(file.exists() for file in files)
    trim(tmp_path, 250)
    assert [file.exists() for file in files] == [True, False, True]
    trim(tmp_path, 0)
    assert not any(file.exists() for file in files)
    assert all(file.exists() for file in foreign)
    trim(tmp_path / "nowhere", 0)


def test_a_process_leaves_no_more_than_it_may(tmp_path):
    code = "from linnet import _programs; _programs.trim.__defaults__ = (1,); import jax, linnet as ln; "
    work = "ln.cache_programs(); jax.jit(lambda x: x * 3)(1.0)"
    python(work.join(["import jax, linnet as ln; ", ""]), **surroundings(tmp_path))
    assert kept(tmp_path / ".cache" / "linnet")
    python(code + work, **surroundings(tmp_path))
    assert not kept(tmp_path / ".cache" / "linnet")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no owners of folders")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    """What lies there is run as it is."""
    from linnet import _programs

    place = tmp_path / f"programs-{_programs._instructions()}"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(ln.InputError, match="of your own, and closed to others"):
        _programs.cache_programs(tmp_path)
    place.chmod(0o700)
    assert _programs._usable(place)
    theirs = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: theirs)
    assert not _programs._usable(place)
