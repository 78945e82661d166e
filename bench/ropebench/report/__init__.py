"""From stored records to tables, plots and the leaderboard. Nothing here imports torch.

    cells        records → flat rows, and blocks of rows that belong in one table
    frames       the same as pandas DataFrames
    paired       differences between methods on identical samples, and ranks
    tables       terminal, Markdown, CSV, JSON
    style plots heatmap      matplotlib figures, PNG and SVG
    summary leaderboard      leaderboard/README.md, its CSV and plots

Import the submodules where they are used: pandas and matplotlib must not slow a command that prints help.
"""
