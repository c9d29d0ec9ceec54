"""One chart kind per file: `gather_…` gives plain numbers, `draw_…` an Altair chart of them; no store, no torch.

    drawing = CATALOGUE[figure.kind].gather(figure, runs)
    spec = spec_of(CATALOGUE[figure.kind].draw(drawing), LIGHT)

lines.py       the records that all kinds of lines share: panels, lines, what colours them
axes.py        what a step is worth: epochs, tokens, seconds; which runs share a point
labels.py      metrics and dials in a reader's words, right-to-left text isolated
stops.py       where training could have stopped, as marks on curves
advised.py     a law along level curves and the points it advises; planes.py: level curves as panels
theme.py       colours, dashes and type for paper and for the dark
draw.py        lines as panels; render.py: pictures from specs; preview.py: lines in a terminal
"""
