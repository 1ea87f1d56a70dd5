"""Figures at toy size: made, judged, and judged again when their data were spoiled."""


def quiet(done, total):
    assert 0 <= done <= total


def run(kind, out, /, **changes):
    """The figure, its data and what is found in them."""
    figure = kind.of_size("quick", changes)
    data, _ = figure.data(out, quiet)
    return figure, data, figure.accept(data)


def passed(kind, out, /, **changes):
    """The figure and its data, in which all is found that should be."""
    figure, data, findings = run(kind, out, **changes)
    all_hold(findings)
    return figure, data


def all_hold(findings):
    assert all(f.holds for f in findings.values()), {n: str(f) for n, f in findings.items() if not f.holds}


def broken(figure, data):
    """What is not found."""
    return {name for name, finding in figure.accept(data).items() if not finding.holds}
