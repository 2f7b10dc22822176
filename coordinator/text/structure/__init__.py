"""Answers whose text must have a structure: JSON by a schema, a regular expression, a grammar.

A `Structure` of a request becomes a `Constraint` of the scheduler (`coordinator.scheduling.constraint`), which says
before each draw which tokens may follow, and after it which ones must. The grammars are llguidance's, which knows the
bytes of every token of the model (`grammars.py`); where a model thinks first, its thoughts are free
(`after_thoughts.py`).
"""
