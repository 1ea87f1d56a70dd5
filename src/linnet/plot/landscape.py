"""The figure of the experiment on landscapes."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.observe import Kind
from linnet.plot.prediction import draw_panel
from linnet.plot.style import panels
from linnet.prediction import Row, critical_point_panel


def landscape(data: xarray.Dataset) -> Figure:
    """Every critical point by loss and index, one panel for each depth, with the modes that it keeps."""
    depths, kinds = data["depth"].values, [Kind(name) for name in str(data.attrs["kinds"]).split()]
    kept = [tuple((np.flatnonzero(k) + 1).tolist()) for k in data["kept"].values]
    figure, (grid,) = panels(4.2 * len(depths), 4.8, 1, len(depths), sharey=True, squeeze=False)
    for i, (axes, depth) in enumerate(zip(grid, depths, strict=True)):
        columns = (data[name].values[i].tolist() for name in ("label", "negative", "loss"))
        points = [
            Row(kept=modes, label=kinds[int(label)], negative_eigenvalues=int(negative), loss=loss)
            for modes, label, negative, loss in zip(kept, *columns, strict=True)
        ]
        last = axes is grid[-1]
        title, ylabel = f"{depth} layers", "" if i else "loss"
        draw_panel(figure, axes, critical_point_panel(points, labeled=last, title=title, ylabel=ylabel))
    return figure
