"""Other people's reward models behind our contract: the layout of their files, what they are asked, their recursions.

One file a model. `docs/released_models.md` says what was checked with real weights, and what was not.
"""
