"""How a model uses its frequencies, how a corpus depends on distance, and small models trained to see both."""
