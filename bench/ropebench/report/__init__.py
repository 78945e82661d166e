"""From stored records to tables, plots and the leaderboard. Nothing here imports torch.

    cells evidence gate      records → flat rows with intervals, and blocks of rows that belong in one table
    frames                   the same as pandas DataFrames
    pooling repeats          several seeds as one row; repeats of a cell that disagree
    paired compare           differences between methods, models or runs on identical samples, and ranks
    effective composite      how far a method carries and what it costs; one number over several tasks
    tables notes sections    terminal, Markdown, CSV, JSON
    dissociation ruler_summary     tables of their own: likelihood against exact match, RULER's mean of 13
    style plots heatmap reach ruler_plot figures     matplotlib figures, PNG and SVG
    summary advice limits leaderboard     leaderboard/README.md, its CSV and plots
    pages                    a page for each task and method

Import the submodules where they are used: pandas and matplotlib must not slow a command that prints help.
"""
