"""`tiny`, the bundled model: what it is trained on, and how.

`recipe` holds every number, `prose` the natural text, `vocabulary` the tokenizer, `sources` the words taken from our
tasks, `rows` the training sequences, `train` the trainer. What the model can do is measured as any model's is.

A run depends on the recipe, the text and the library versions alone. Row i is a function of (seed, i), so a run can
stop and go on anywhere.
"""
