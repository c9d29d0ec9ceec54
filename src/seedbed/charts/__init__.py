"""One chart kind per file: `gather_…` gives plain numbers, `draw_…` a chart of them; no store, no torch.

    chart = CHART_KINDS[figure.kind].gather_figure(figure, runs)
    spec = to_vega_lite(CHART_KINDS[figure.kind].draw(chart), LIGHT_THEME)

chart_kinds.py     every kind of figure with its two functions
panel_layout.py    which runs, panels, colours and clocks a figure has; the records that all line charts share
axis_labels.py     metrics, settings and values as axis and legend text, right-to-left text isolated
line_chart.py      panels of learning curves and sweeps
vega_lite.py       charts as Vega-Lite specs: data, axes with round ticks, and the width of a page or of print
fit_width.js       the same in a browser
theme.py           colours, dashes and fonts: light, dark and for print
render.py          specs as SVG, PNG and PDF
terminal_preview.py  charts as text for a terminal
"""
