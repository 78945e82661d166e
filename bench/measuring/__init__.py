"""What `make bench` and `make bench-gpu` measure: ropebench against the plain way, as ratios within one run.

`figure` is one line of the table, `sizes` how much is measured, `subject` the model and the text, `plain` what other
tools do. Each other module measures one thing. No figure is given where the two ways give different answers.
"""
