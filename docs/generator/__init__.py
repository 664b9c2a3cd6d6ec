"""Makes those parts of the documentation that follow from the code: reference pages, listings, outputs of examples.

`python -m docs.generator` writes them, `python -m docs.generator --check` tells whether they are up to date.
"""
