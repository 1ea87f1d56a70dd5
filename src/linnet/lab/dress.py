"""How the pictures look, in light and in the dark; colours of the page, which a canvas cannot read off its style."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bokeh.plotting import figure

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif"
# at least 3:1 against both grounds
COLOURS = ("#d9560b", "#12978b", "#8b5cf6", "#c08a08", "#2b8ac6", "#d6336c", "#6a9a1f", "#7c8799")
SOFT = COLOURS[-1]
_INK = {False: "#1c2027", True: "#e8e5de"}
_FAINT = {False: "#565e6b", True: "#a7adb8"}


def plain(*, height: int = 280, **options: object) -> "figure":
    """An empty figure as wide as its place, without a toolbar."""
    from bokeh.plotting import figure

    tools = options.pop("tools", "")
    return figure(height=height, sizing_mode="stretch_width", toolbar_location=None, tools=tools, **options)


def dress(made: "figure", *, dark: bool) -> None:
    """Puts the page's colours on a figure."""
    from bokeh.models import ColorBar

    ink, faint = _INK[dark], _FAINT[dark]
    made.background_fill_color = made.border_fill_color = None
    made.outline_line_color = None
    for axis in made.axis:
        axis.update(
            axis_line_color=faint,
            major_tick_line_color=faint,
            minor_tick_line_color=None,
            major_label_text_color=faint,
            axis_label_text_color=ink,
            major_label_text_font=FONT,
            axis_label_text_font=FONT,
            axis_label_text_font_style="normal",
        )
    for bar in made.select({"type": ColorBar}):
        bar.update(
            title_text_color=ink,
            title_text_font=FONT,
            title_text_font_style="normal",
            major_label_text_color=faint,
            major_label_text_font=FONT,
            major_tick_line_color=faint,
            background_fill_alpha=0.0,
        )
    for grid in made.grid:
        grid.update(grid_line_color=faint, grid_line_alpha=0.15)
    for legend in made.legend:
        legend.update(
            label_text_color=ink,
            label_text_font=FONT,
            label_text_font_size="11px",
            background_fill_alpha=0.0,
            border_line_color=None,
            spacing=0 if legend.orientation == "vertical" else 16,
            padding=4,
        )
