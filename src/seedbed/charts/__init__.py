"""One chart kind per file: `gather_…` gives plain numbers, `draw_…` an Altair chart of them; no store, no torch.

    chart = CHART_KINDS[figure.kind].gather_figure(figure, runs)
    spec = to_vega_lite(CHART_KINDS[figure.kind].draw(chart), LIGHT_THEME)

chart_kinds.py     every kind of figure with its two functions
run_selection.py   which runs a figure shows, grouped by config; steps as epochs, tokens or seconds
line_data.py       the records that all line charts share: panels, lines, axes
panel_layout.py    which panels a figure has, and how their values are labelled
axis_labels.py     metrics, settings and values as axis and legend text, right-to-left text isolated
line_chart.py      line charts as Altair panels; encodings.py: their axes, scales and legends
stopping_marks.py  where training could have stopped, as marks on learning curves
budget_fit.py      a scaling law fitted to a budget chart; budget_panels.py: that chart as Altair panels
theme.py           colours, dashes and fonts, light and dark
vega_lite.py       charts as Vega-Lite specs; render.py: specs as SVG, PNG and PDF
terminal_preview.py  charts as text for a terminal
"""
