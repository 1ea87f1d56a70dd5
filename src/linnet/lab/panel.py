"""A panel of a page: a Bokeh figure with a title and a caption, drawn from named sources."""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif"
# at least 3:1 against both backgrounds
COLORS = ("#d9560b", "#12978b", "#8b5cf6", "#c08a08", "#2b8ac6", "#d6336c", "#6a9a1f", "#7c8799")
GRAY = COLORS[-1]
_TEXT = {False: "#1c2027", True: "#e8e5de"}
_AXES = {False: "#565e6b", True: "#a7adb8"}
_STYLES: dict[str, dict[str, Any]] = {
    "line": {"line_width": 2},
    "predicted": {"line_width": 6, "alpha": 0.3},
    "measured": {"line_width": 1.8},
    "thin": {"line_width": 1, "alpha": 0.35},
    "dashed": {"line_width": 1.5, "line_dash": "dashed"},
    "dotted": {"line_width": 1.5, "line_dash": "dotted"},
}


class Sources(dict[str, "ColumnDataSource"]):
    """The data of a page's panels, by name."""

    def columns(self, name: str, *columns: str) -> "ColumnDataSource":
        """The source of this name with (at least) these columns, which are empty at first."""
        from bokeh.models import ColumnDataSource

        if name not in self:
            self[name] = ColumnDataSource({})
        for column in columns:
            if column not in self[name].data:
                self[name].add([], column)
        return self[name]


class BokehPanel:
    """A Bokeh figure with its title, and a caption that screen readers read too.

    - `clickable`, `zoomable`: whether clicks and new ranges of the axes change the page's values.
    - `log`: "x", "y", or "xy".
    - `options`: of `bokeh.plotting.figure`.
    """

    def __init__(
        self,
        sources: Sources,
        name: str,
        title: str,
        caption: str,
        xlabel: str,
        ylabel: str,
        *,
        log: Literal["", "x", "y", "xy"] = "",
        height: int = 280,
        clickable: bool = False,
        zoomable: bool = False,
        wide: bool = False,
        **options: Any,
    ):
        from bokeh.plotting import figure

        self.name, self.title, self.caption = name, title, caption
        self.clickable, self.zoomable, self.wide = clickable, zoomable, wide
        self._sources = sources
        self.figure = figure(
            height=height,
            sizing_mode="stretch_width",
            toolbar_location=None,
            x_axis_label=xlabel,
            y_axis_label=ylabel,
            x_axis_type="log" if "x" in log else "auto",
            y_axis_type="log" if "y" in log else "auto",
            **{"tools": ""} | options,
        )

    def line(
        self,
        source: str,
        x: str,
        y: str,
        style: str = "line",
        *,
        color: str = GRAY,
        label: str = "",
        many: bool = False,
        **options: Any,
    ) -> None:
        """One line, or one for each row where `many` is set or `color` is "color", a column of the source."""
        columns = (x, y, "color") if color == "color" else (x, y)
        draw = self.figure.multi_line if many or color == "color" else self.figure.line
        how = _STYLES[style] | {"color": color} | ({"legend_label": label} if label else {}) | options
        draw(x, y, source=self._sources.columns(source, *columns), **how)

    def points(
        self, source: str, x: str, y: str, *, color: str = GRAY, label: str = "", size: Any = 8, **options: Any
    ) -> None:
        """A marker for each row; `color` and `size` may be columns of the source, "color" and "size"."""
        columns = [x, y, *(name for name in (color, size, options.get("legend_field")) if name in _COLUMNS)]
        how = {"color": color, "size": size} | ({"legend_label": label} if label else {}) | options
        self.figure.scatter(x, y, source=self._sources.columns(source, *columns), **how)

    def text(self, source: str, x: str, y: str, text: str, **options: Any) -> None:
        """A text for each row."""
        how = {"text_color": GRAY, "text_font_size": "12px", "text_align": "right"} | options
        self.figure.text(x, y, text, source=self._sources.columns(source, x, y, text), **how)

    def image(
        self, source: str, palette: Any, low: float, high: float, *, log: bool = False, title: str | None = None
    ) -> None:
        """An image of the columns of `image_columns`; with a color bar if it has a `title`, which may be empty."""
        from bokeh.models import ColorBar, LinearColorMapper, LogColorMapper

        mapper = (LogColorMapper if log else LinearColorMapper)(palette=palette, low=low, high=high)
        columns = self._sources.columns(source, "image", "x", "y", "dw", "dh")
        self.figure.image("image", x="x", y="y", dw="dw", dh="dh", source=columns, color_mapper=mapper)
        if title is not None:
            self.figure.add_layout(ColorBar(color_mapper=mapper, title=title or None, width=14), "right")
            self.figure.grid.visible = False

    def legend(self, location: str) -> None:
        """Puts the legend in a corner, or in a row "above" or a column "below" the axes."""
        (legend,) = self.figure.legend
        if location in ("above", "below"):
            legend.orientation = "horizontal" if location == "above" else "vertical"
            self.figure.add_layout(legend, location)
        else:
            legend.location = location

    def show_range(self, left: float, right: float, bottom: float, top: float) -> None:
        """Shows these ranges of the axes, unless a mouse wheel has already moved there."""
        for axis, low, high in ((self.figure.x_range, left, right), (self.figure.y_range, bottom, top)):
            if max(abs(axis.start - low), abs(axis.end - high)) > 1e-9 * abs(high - low):
                axis.update(start=low, end=high)

    def set_colors(self, *, dark: bool) -> None:
        """Takes the colors of a light or dark page: a canvas cannot read its style."""
        from bokeh.models import ColorBar

        made, text, axes = self.figure, _TEXT[dark], _AXES[dark]
        made.background_fill_color = made.border_fill_color = made.outline_line_color = None
        for axis in made.axis:
            axis.update(axis_line_color=axes, major_tick_line_color=axes, minor_tick_line_color=None)
            axis.update(axis_label_text_color=text, axis_label_text_font=FONT, axis_label_text_font_style="normal")
            axis.update(major_label_text_color=axes, major_label_text_font=FONT)
        for bar in made.select({"type": ColorBar}):
            bar.update(title_text_color=text, title_text_font=FONT, title_text_font_style="normal")
            bar.update(major_label_text_color=axes, major_label_text_font=FONT)
            bar.update(major_tick_line_color=axes, background_fill_alpha=0.0)
        for grid in made.grid:
            grid.update(grid_line_color=axes, grid_line_alpha=0.15)
        for legend in made.legend:
            legend.update(label_text_color=text, label_text_font=FONT, label_text_font_size="11px", padding=4)
            legend.update(background_fill_alpha=0.0, border_line_color=None)
            legend.spacing = 0 if legend.orientation == "vertical" else 16


_COLUMNS = ("color", "size", "kind")


def image_columns(image: Any, left: float, right: float, bottom: float, top: float) -> dict[str, list[Any]]:
    """The columns of an image over these ranges."""
    return {"image": [image], "x": [left], "y": [bottom], "dw": [right - left], "dh": [top - bottom]}
