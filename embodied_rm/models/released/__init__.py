"""Released third-party reward models: their file layouts, queries and recursions, one module per model.

`docs/released_models.md` states which models were checked with real weights.
"""
