"""tfmc-serve: embeddings, rerankers and classifiers over HTTP. A row's numbers do not depend on its company.

`tfmc-serve FOLDER` is the command; `python -m tfmc_serve` is the same.
"""
