"""From stored records to tables, plots and the leaderboard. Nothing here imports torch.

    cells evidence gate      records → flat rows with intervals, and blocks of rows that belong in one table
    frames loading           the same as pandas DataFrames; `ropebench.load_results`
    pooling repeats          several seeds as one row; repeats of a cell that disagree
    paired compare           differences between methods, models or runs on identical samples, and ranks
    effective composite      how far a method carries and what it costs; one number over several tasks
    tables notes sections    terminal, Markdown, CSV, JSON
    formats                  any table as LaTeX, Markdown, CSV, JSON, Parquet
    dissociation ruler_summary     tables of their own: likelihood against exact match, RULER's mean of 13
    style plots heatmap reach ruler_plot figures     matplotlib figures, PNG and SVG
    summary advice limits provenance leaderboard     leaderboard/README.md, its CSV and plots
    site                     leaderboard/index.html (its template, style and script are in page/)
    pages                    a page for each task and method

Import the submodules where they are used: pandas and matplotlib must not slow a command that prints help.
"""
