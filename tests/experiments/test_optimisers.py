"""The figures of optimisers at quick size: they run, draw, and their acceptance can fail."""

from linnet.experiments.optimisers import Edge


def quiet(done, total):
    assert 0 <= done <= total


def run(kind, folder, **changes):
    figure = kind.of_size("quick", changes)
    data, _ = figure.data(folder, quiet)
    findings = figure.accept(data)
    assert all(f.holds for f in findings.values()), {n: str(f) for n, f in findings.items() if not f.holds}
    return figure, data


def broken(figure, data):
    return {name for name, finding in figure.accept(data).items() if not finding.holds}


def test_edge_of_each_optimiser(tmp_path):
    figure, data = run(Edge, tmp_path)
    assert len(figure.draw(data).axes) == 8
    # each by the limit of another: heavy ball by that of descent, Nesterov and descent by that of heavy ball
    for name, factor, words in (
        ("heavy ball", 1.5, "heavy ball rests below"),
        ("Nesterov", 0.5, "Nesterov reaches"),
        ("descent", 1 / 1.5, "descent reaches"),
        ("Adam", 2.0, "Adam passes"),
        ("Adam", 0.5, "Adam passes"),
    ):
        told = data["sharpness"].where(data["optimiser"] != name, factor * data["sharpness"])
        assert any(failed.startswith(words) for failed in broken(figure, data.assign(sharpness=told))), name
    assert len(broken(figure, data.assign(flow=0.7 * data["flow"]))) == 6
    assert len(broken(figure, data.assign(loss=1 / data["loss"]))) == 5
