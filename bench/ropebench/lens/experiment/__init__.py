"""Small models trained on data whose dependence is known, to see which rotary frequencies they come to use.

The claims are those of arXiv:2607.07678, which was not to be had in full: **sizes, formulations and estimators are
ours**. `block` varies the length of latent blocks, `igsm` the operations of word problems, `pi` takes three models past
their window under every method. `units` runs what is not stored yet, `small` trains and looks, `law` fits a line.

A model that was trained and measured is one lens record; nothing is fitted here: fits and plots are made from records.
"""
